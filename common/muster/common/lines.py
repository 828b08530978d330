"""Models of links: the modelled seconds of transfers, from nominal rates and without a network.

In lockstep these seconds decide which devices met a deadline. The real duration of a transfer over
TCP is measured too, but decides nothing.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from muster.common import seeds
from muster.common.config import Section
from muster.common.jitter import JitterDistribution, delays
from muster.common.rates.cross_traffic import TrafficLoad, constant_rate, left_by
from muster.common.rates.over_time import RateOverTime
from muster.common.rates.reading import read_rate
from muster.common.rates.recording import Direction
from muster.common.slow_start import slow_start_s

Overflow = Literal["queue", "collide", "subset"]

Positive = Annotated[float, Field(gt=0)]


_MODEL_STEP_S = 0.1
"""Modelled transfers see a trace in steps of this length, so that it costs a process little."""


class LineTrace(Section):
    """A rate of a link that varies, recorded or with cross traffic."""

    file: str | None = None
    """The recording; absent: the rate is `bps`."""

    format: str | None = None
    """Format of the file; absent: found by its content."""

    bps: Positive | None = None
    """The rate of a link that is not recorded."""

    loads: Annotated[tuple[TrafficLoad, ...], Field(strict=False)] = ()
    """Cross traffic, which leaves less of the rate."""

    direction: Direction
    start_s: float = 0.0
    """Where in the recording the link is at scenario second 0."""

    share: Positive = 1.0
    """The part of the rate that is used."""

    most_bps: Positive | None = None
    """The rate is never faster. Absent: no limit."""

    stalled_s_a_bit: Annotated[float, Field(ge=0)] = 0.0
    """Seconds for which the link stalls after every bit in the mean, because of lost packets."""

    def rate(self) -> RateOverTime:
        """The rate, which all links with the same share.

        Raises:
            ValueError: the file cannot be read.
        """
        return _rate_of(self._source, self.share, self.most_bps, self.stalled_s_a_bit)

    def whole(self) -> RateOverTime:
        """The rate that all links share, as it is: not in steps.

        Raises:
            ValueError: the file cannot be read, or cross traffic leaves nothing.
        """
        return _whole(self._source)

    @property
    def _source(self) -> "_Source":
        return _Source(self.file, self.format, self.direction, self.bps, self.loads)

    def piece(self, at_s: float) -> tuple[float, float]:
        """The rate from scenario second `at_s` on, in bits per second, and until when it holds."""
        bps, until = self.rate().piece(at_s + self.start_s)
        return bps, max(until - self.start_s, math.nextafter(at_s, math.inf))


LineTraces = Annotated[tuple[LineTrace, ...], Field(strict=False)]  # from JSON, they are lists


class _Source(NamedTuple):
    """What all links with the same rate have in common, as the fields of LineTrace."""

    file: str | None
    format: str | None
    direction: Direction
    bps: float | None
    loads: tuple[TrafficLoad, ...]


@lru_cache(maxsize=1024)
def _whole(source: _Source) -> RateOverTime:
    if source.file is None:
        assert source.bps is not None
        rate = constant_rate(source.bps)
    else:
        rate = read_rate(Path(source.file), source.direction, source.format)
    return left_by(source.loads, rate) if source.loads else rate


@lru_cache(maxsize=1024)
def _rate_of(
    source: _Source, share: float, most_bps: float | None, stalled_s_a_bit: float
) -> RateOverTime:
    rate = _whole(source).coarse(_MODEL_STEP_S)
    if share == 1 and most_bps is None and not stalled_s_a_bit:
        return rate
    return rate.changed(share, most_bps or math.inf, stalled_s_a_bit)


@lru_cache(maxsize=1024)
def _span_s(rate: RateOverTime, bits: float) -> tuple[float, float]:
    return rate.span_s(bits)


def _passing_s(traces: Sequence[LineTrace], bits: float, at_s: float) -> float:
    """Seconds in which `bits` pass from scenario second `at_s` on, at the slowest of the traces."""
    if len(traces) == 1:
        begin_s = at_s + traces[0].start_s
        return traces[0].rate().finish(begin_s, bits) - begin_s
    now_s = at_s
    while bits > 0:
        pieces = [trace.piece(now_s) for trace in traces]
        bps, until_s = min(bps for bps, _ in pieces), min(until_s for _, until_s in pieces)
        if bits <= bps * (until_s - now_s):
            return now_s + bits / bps - at_s
        bits -= bps * (until_s - now_s)
        now_s = until_s
    return now_s - at_s


_MOST_DEVIATIONS = 10.0
"""In the model, no message is later than its delay by more than so many standard deviations."""


class LineJitter(Section):
    """The jitter of a device's link in the model: work has two messages in each direction, and each
    is late by a random number."""

    deviation_s: Positive
    distribution: JitterDistribution
    down_s: Annotated[float, Field(ge=0)] = 0.0
    up_s: Annotated[float, Field(ge=0)] = 0.0
    """The delays without jitter."""

    seed: int
    client: str
    """Whose jitter is drawn."""

    def seconds(self, at_s: float) -> float:
        """By how much the messages of work to which the device is called at scenario second `at_s`
        are late in all. It is negative if they are early."""
        draws = seeds.stream(self.seed, "modelled jitter", self.client, float(at_s).hex())
        found = 0.0
        for delay_s in (self.down_s, self.up_s):
            of_way = delays(self.distribution, delay_s, self.deviation_s, draws, 2) - delay_s
            found += float(of_way.clip(max=_MOST_DEVIATIONS * self.deviation_s).sum())
        return found

    @property
    def bounds_s(self) -> tuple[float, float]:
        """The least and the most of `seconds`."""
        return -2 * (self.down_s + self.up_s), 4 * _MOST_DEVIATIONS * self.deviation_s


class LinkModel(Section):
    """The model of a device's link."""

    down_bps: Positive | None = None
    """Bits per second towards the device, in the long run. Absent: no limit."""

    up_bps: Positive | None = None
    """Bits per second from the device, in the long run. Absent: no limit."""

    down_traces: LineTraces = ()
    up_traces: LineTraces = ()
    """Recorded rates, of which the slowest counts. Without any, the rate does not vary."""

    rtt_s: Annotated[float, Field(ge=0)] = 0.0
    """Round-trip time of a small message in seconds."""

    jitter: LineJitter | None = None
    """The random part of its delays; absent: there is none."""

    window_bytes: Positive | None = None
    """Bytes of the first round trip of a transfer, doubled in each one that follows. Absent: there
    is no slow start."""

    queue_s: Annotated[float, Field(ge=0)] = 0.0
    """The longest time for which a message waits in the queue before the link."""

    gap_s: Annotated[float, Field(ge=0)] = 0.0
    """The longest time for which nothing passes."""

    cell: str | None = None
    """The cell of the group's shared link that the device is in."""

    @property
    def varies(self) -> bool:
        """Whether modelled transfers depend on when they begin."""
        return bool(self.down_traces or self.up_traces or self.jitter)

    def jitter_s(self, at_s: float) -> float:
        """Seconds by which jitter delays work to which a device is called at scenario second
        `at_s`; negative: its messages are early."""
        return self.jitter.seconds(at_s) if self.jitter is not None else 0.0

    def down_s(self, bytes_down: float, at_s: float = 0.0) -> float:
        """Seconds in which a device receives `bytes_down`, from scenario second `at_s`."""
        start_s = self.slow_start_s(bytes_down, self.down_bps)
        if self.down_traces:
            return start_s + _passing_s(self.down_traces, 8 * bytes_down, at_s + start_s)
        return start_s + (8 * bytes_down / self.down_bps if self.down_bps else 0.0)

    def up_s(self, bytes_up: float, at_s: float = 0.0) -> float:
        """Seconds in which a device sends `bytes_up`, from scenario second `at_s`."""
        start_s = self.slow_start_s(bytes_up, self.up_bps)
        if self.up_traces:
            return start_s + _passing_s(self.up_traces, 8 * bytes_up, at_s + start_s)
        return start_s + (8 * bytes_up / self.up_bps if self.up_bps else 0.0)

    def slow_start_s(self, nbytes: float, bps: float | None) -> float:
        """Seconds by which slow start delays a transfer at a rate; None: no limit."""
        if self.window_bytes is None:
            return 0.0
        return slow_start_s(nbytes, bps, self.rtt_s, self.window_bytes)

    def transfers(
        self, bytes_down: float, bytes_up: float, at_s: float = 0.0, train_s: float = 0.0
    ) -> tuple[float, float]:
        """Seconds of the two transfers of work to which a device is called at scenario second
        `at_s`: half a round trip, the model, half a round trip, the training, the update."""
        down_s = self.down_s(bytes_down, at_s + self.rtt_s / 2)
        return down_s, self.up_s(bytes_up, at_s + self.rtt_s + down_s + train_s)

    def transfer_s(
        self, bytes_down: float, bytes_up: float, at_s: float = 0.0, train_s: float = 0.0
    ) -> float:
        """Seconds of a round's two transfers, as in `transfers`, plus a round trip for each."""
        down_s, up_s = self.transfers(bytes_down, bytes_up, at_s, train_s)
        return down_s + up_s + 2 * self.rtt_s + self.jitter_s(at_s)

    def training_s(
        self, work_s: float, bytes_down: float, bytes_up: float, at_s: float = 0.0
    ) -> float:
        """Seconds of training in work that takes `work_s` with its transfers, from `at_s` on."""
        if not self.varies:
            return max(0.0, work_s - self.transfer_s(bytes_down, bytes_up))
        down_s = self.down_s(bytes_down, at_s + self.rtt_s / 2)
        work_s -= self.jitter_s(at_s)
        if not self.up_traces:
            return max(0.0, work_s - down_s - self.up_s(bytes_up) - 2 * self.rtt_s)
        [trace] = self.up_traces
        end_s = at_s + work_s - self.rtt_s + trace.start_s
        begin_s = trace.rate().latest(end_s, 8 * bytes_up) - trace.start_s
        start_s = self.slow_start_s(bytes_up, self.up_bps)
        return max(0.0, begin_s - start_s - at_s - self.rtt_s - down_s)

    def bounds_s(self, bytes_down: float, bytes_up: float) -> tuple[float, float]:
        """The shortest and the longest `transfer_s` of a device's own link, whenever it begins."""
        if not self.varies:
            seconds = self.transfer_s(bytes_down, bytes_up)
            return seconds, seconds
        spans = [
            _span_s(traces[0].rate(), 8 * nbytes) if traces and nbytes else (seconds, seconds)
            for traces, seconds, nbytes in (
                (self.down_traces, self.down_s(bytes_down), bytes_down),
                (self.up_traces, self.up_s(bytes_up), bytes_up),
            )
        ]
        least_s, most_s = (math.fsum(of_all) for of_all in zip(*spans, strict=True))
        more_s = 2 * self.rtt_s
        for traces, nbytes, bps in (
            (self.down_traces, bytes_down, self.down_bps),
            (self.up_traces, bytes_up, self.up_bps),
        ):
            if traces and nbytes:
                more_s += self.slow_start_s(nbytes, bps)
        early_s, late_s = self.jitter.bounds_s if self.jitter is not None else (0.0, 0.0)
        return least_s + more_s + early_s, most_s + more_s + late_s

    @property
    def under_way_bytes(self) -> float:
        """Bytes under way when the faster direction is full: rate times round-trip time, and those
        in its queue."""
        return max(self.down_bps or 0.0, self.up_bps or 0.0) * (self.rtt_s + self.queue_s) / 8

    @property
    def late_s(self) -> float:
        """Seconds after which the answer to a small message may come: a round trip, in which it
        waits in a full queue and in a handover."""
        return self.rtt_s + self.queue_s + self.gap_s

    def patience_s(self, bytes_in_flight: float) -> float:
        """Seconds after which a silent peer may be considered dead.

        They cover the bytes that may be in flight ahead of the peer's next message, at half the
        rate, and some round trips, so that a slow upload does not count as a death.
        """
        slower = min(self.down_bps or math.inf, self.up_bps or math.inf)
        return 2 * 8 * bytes_in_flight / slower + 2 * self.rtt_s + 2 * self.late_s


class Limit(NamedTuple):
    """A rate of a link that flows cannot exceed.

    Attributes:
        bps: in bits per second, in the mean; infinite: no limit.
        traces: rates that vary, and count instead.
    """

    bps: float
    traces: Sequence[LineTrace] = ()

    @classmethod
    def of(cls, bps: float | None, traces: Sequence[LineTrace]) -> "Limit":
        """The limit of a link with these settings."""
        return cls(math.inf if bps is None else bps, traces)

    @property
    def bounded(self) -> bool:
        """Whether it limits anything."""
        return math.isfinite(self.bps)

    def longest_s(self, bits: float) -> float:
        """The longest time that `bits` > 0 take, whenever they begin."""
        return max([bits / self.bps, *(_span_s(trace.rate(), bits)[1] for trace in self.traces)])

    def at(self, now_s: float) -> tuple[float, float]:
        """The limit from a moment on, and until when it holds."""
        if not self.traces:
            return self.bps, math.inf
        pieces = [trace.piece(now_s) for trace in self.traces]
        return min(bps for bps, _ in pieces), min(until_s for _, until_s in pieces)


class SharedPart(Section):
    """The model of a link that devices share, or of a part of it."""

    down_bps: Positive | None = None
    up_bps: Positive | None = None

    down_traces: LineTraces = ()
    up_traces: LineTraces = ()
    """Rates that vary; at most one for each direction, whose mean is the rate above."""

    def limit(self, direction: Direction) -> Limit:
        """Its rate in a direction."""
        if direction == "down":
            return Limit.of(self.down_bps, self.down_traces)
        return Limit.of(self.up_bps, self.up_traces)

    @property
    def gap_s(self) -> float:
        """The longest time for which nothing passes in a direction."""
        traces = (*self.down_traces, *self.up_traces)
        return max((trace.rate().gap_s for trace in traces), default=0.0)

    def trace_files(self) -> set[str]:
        """The files of its recorded rates."""
        traces = (*self.down_traces, *self.up_traces)
        return {trace.file for trace in traces if trace.file is not None}


class Cell(SharedPart):
    """The model of a part of a shared link that some of its devices share."""

    within: str | None = None
    """The cell of which it is a part; absent: it is a part of the shared link itself."""


class SharedLine(SharedPart):
    """The model of the link that all devices of a group share, a tree if it has cells."""

    name: str = ""
    """Groups whose links have the same name share one; empty: only the devices of the group do."""

    cells: dict[str, Cell] = Field(default_factory=dict)
    """The cells, by name."""

    queue_down_bytes: Positive | None = None
    queue_up_bytes: Positive | None = None
    """The length of the queue of all devices together, first in, first out; absent: each device has
    a queue of its own, and all are served in turn."""

    slots: Annotated[int, Field(gt=0)] | None = None
    """Number of devices that can transfer in a round (at once, with overflow "queue"). Absent:
    all."""

    overflow: Overflow = "queue"
    """What happens if more devices than slots want to transfer."""

    @property
    def delays(self) -> bool:
        """Whether devices of the group can make one another slower."""
        limited = self.down_bps is not None or self.up_bps is not None or bool(self.cells)
        return limited or (self.slots is not None and self.overflow == "queue")

    def cell_limits(self, direction: Direction) -> dict[str, Limit]:
        """The rate of each cell."""
        return {name: cell.limit(direction) for name, cell in self.cells.items()}

    def queue_bytes(self, direction: Direction) -> float | None:
        """The length of the queue of all devices in a direction; None: each has one of its own."""
        return self.queue_down_bytes if direction == "down" else self.queue_up_bytes

    @property
    def parts(self) -> list[SharedPart]:
        """The link and its cells."""
        return [self, *self.cells.values()]

    @property
    def queue_s(self) -> float:
        """The longest time for which a message waits in its queue."""
        queues = (self.queue_down_bytes, self.down_bps), (self.queue_up_bytes, self.up_bps)
        return max(8 * nbytes / bps if nbytes and bps else 0.0 for nbytes, bps in queues)

    def path(self, cell: str | None) -> list[str]:
        """The cells through which a device in a cell transfers, from the inside."""
        path: list[str] = []
        while cell is not None:
            path.append(cell)
            cell = self.cells[cell].within
        return path

    def extra_s(
        self,
        line: LinkModel,
        bytes_down: float,
        bytes_up: float,
        rank: int,
        n: int,
        begun: "BegunWork",
        in_cells: Mapping[str, int],
    ) -> float:
        """Modelled seconds that sharing the link adds to a device's transfers.

        The rate is divided equally among the devices that transfer at once, and so is that of each
        cell. With queueing slots devices take turns in the order of `rank`, `slots` at a time.

        Args:
            rank: rank of the device among those that transfer in the round, from 0.
            n: number of devices that transfer in the round.
            begun: the work of the device as if it had its link for itself.
            in_cells: how many of them are in each cell.
        """
        queueing = self.slots is not None and self.overflow == "queue"
        turn, at_once = 1, n
        if queueing:
            assert self.slots is not None
            turn, at_once = rank // self.slots + 1, min(n, self.slots)
        together = self._together(line, at_once, in_cells)
        traffic, train_s = (bytes_down, bytes_up), 0.0
        if together.varies:
            train_s = line.training_s(begun.work_s, *traffic, begun.at_s)
        when = begun.at_s, train_s
        return turn * together.transfer_s(*traffic, *when) - line.transfer_s(*traffic, *when)

    def least(self, line: LinkModel, at_once: int) -> LinkModel:
        """The link of a device when `at_once` devices of the group transfer; decides timeouts."""
        if self.slots is not None and self.overflow == "queue":
            at_once = min(at_once, self.slots)
        together = self._together(line, at_once, dict.fromkeys(self.cells, at_once))
        on_path = [self, *(self.cells[cell] for cell in self.path(line.cell))]
        return together.model_copy(
            update={
                "down_traces": (),
                "up_traces": (),
                "queue_s": line.queue_s + self.queue_s,
                "gap_s": line.gap_s + max(part.gap_s for part in on_path),
            }
        )

    def _together(self, line: LinkModel, at_once: int, in_cells: Mapping[str, int]) -> LinkModel:
        """The link of a device when each of `at_once` devices has the same part of this link.

        Args:
            in_cells: how many of them have the same part of each cell.
        """
        for cell in self.path(line.cell):
            line = _with_part(line, self.cells[cell], in_cells[cell])
        return _with_part(line, self, at_once).model_copy(update={"cell": None})


def _with_part(line: LinkModel, of: SharedPart, at_once: int) -> LinkModel:
    """A link behind another one, of which each of `at_once` devices has the same part."""
    down, up = (None if bps is None else bps / at_once for bps in (of.down_bps, of.up_bps))
    down_traces = _slowest(line.down_traces, line.down_bps, of.down_traces, down, at_once)
    up_traces = _slowest(line.up_traces, line.up_bps, of.up_traces, up, at_once)
    return line.model_copy(
        update={
            "down_bps": _slower(line.down_bps, down),
            "up_bps": _slower(line.up_bps, up),
            "down_traces": down_traces,
            "up_traces": up_traces,
        }
    )


def _slower(own_bps: float | None, fair_bps: float | None) -> float | None:
    return min(own_bps, fair_bps) if own_bps and fair_bps else own_bps or fair_bps


def _slowest(
    own: tuple[LineTrace, ...],
    own_bps: float | None,
    shared: tuple[LineTrace, ...],
    fair_bps: float | None,
    at_once: int,
) -> tuple[LineTrace, ...]:
    """The recorded rates of a device that shares a link.

    Args:
        own_bps, fair_bps: the rate of its own link and its part of the shared one, in the mean.
    """
    if own and shared:
        return own + _each(shared, share=1 / at_once)
    if own:
        return _at_most(own, fair_bps)
    return _each(shared, share=1 / at_once, most_bps=own_bps)


def _at_most(traces: tuple[LineTrace, ...], bps: float | None) -> tuple[LineTrace, ...]:
    return tuple(
        trace.model_copy(update={"most_bps": _slower(trace.most_bps, bps)}) for trace in traces
    )


def _each(traces: tuple[LineTrace, ...], **changes: float | None) -> tuple[LineTrace, ...]:
    return tuple(trace.model_copy(update=changes) for trace in traces)


def turns(seed: int, group: str, round: int, clients: Collection[str]) -> list[str]:
    """The order in which the devices of a group that contend in a round get slots.

    It is drawn from a stream of its own, so the gateway that grants slots, a plan and the server
    compute the same order.
    """
    ordered = sorted(clients)
    drawn = seeds.stream(seed, "slots", group, round).permutation(len(ordered))
    return [ordered[place] for place in drawn]


class BegunWork(NamedTuple):
    """The work of a device that has its link for itself.

    Attributes:
        at_s: scenario seconds at which the step began in which the device was called.
        work_s: modelled seconds from the call to the end.
    """

    at_s: float
    work_s: float


def extra_seconds(
    shared: SharedLine,
    seed: int,
    group: str,
    round: int,
    lines: Mapping[str, LinkModel],
    traffic: Mapping[str, tuple[float, float]],
    work: Mapping[str, BegunWork],
) -> dict[str, float]:
    """Modelled seconds that sharing adds to the transfers of each device in a round.

    Args:
        lines: link models of the devices that transfer in the round, by client.
        traffic: the lengths of their models and updates, in bytes.
        work: their work as if they had their links for themselves.
    """
    order = turns(seed, group, round, lines)
    in_cells = Counter(cell for line in lines.values() for cell in shared.path(line.cell))
    return {
        client: shared.extra_s(
            lines[client], *traffic[client], rank, len(order), work[client], in_cells
        )
        for rank, client in enumerate(order)
    }


def granted(
    shared: SharedLine, seed: int, group: str, round: int, active: Collection[str]
) -> frozenset[str]:
    """The active devices of a group that are granted a slot in a round.

    If there are more active devices than slots, the overflow rule decides. collide: no device is
    granted one (the literal reading of M_max in the correlated-participation paper). subset: as
    many devices as there are slots are drawn. queue: all devices are granted one.
    """
    if shared.slots is None or shared.overflow == "queue" or len(active) <= shared.slots:
        return frozenset(active)
    if shared.overflow == "collide":
        return frozenset()
    return frozenset(turns(seed, group, round, active)[: shared.slots])
