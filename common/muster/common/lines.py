"""Models of links: the modelled seconds of transfers, from nominal rates and without a network.

In lockstep these seconds decide which devices met a deadline. The real duration of a transfer over
TCP is measured too, but decides nothing.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field

from muster.common import seeds
from muster.common.config import Section
from muster.common.jitter import JitterDistribution, delays
from muster.common.rates.cross_traffic import TrafficLoad, constant_rate, left_by
from muster.common.rates.over_time import RateOverTime
from muster.common.rates.reading import read_rate
from muster.common.rates.recording import Direction
from muster.common.slow_start import slow_start_s

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

    queue_down_bytes: Positive | None = None
    queue_up_bytes: Positive | None = None
    """The lengths of the device's queues before the link. Absent: they are too short to count."""

    shared_queue_s: Annotated[float, Field(ge=0)] = 0.0
    """The longest time for which a message waits in a queue of all devices."""

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
    def queue_s(self) -> float:
        """The longest time for which a message waits in the queues before the link."""
        queues = (self.queue_down_bytes, self.down_bps), (self.queue_up_bytes, self.up_bps)
        own_s = max(8 * nbytes / bps if nbytes and bps else 0.0 for nbytes, bps in queues)
        return own_s + self.shared_queue_s

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
