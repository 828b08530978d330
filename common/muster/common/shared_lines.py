"""Models of links that devices share: what sharing adds to the seconds of transfers."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from muster.common import seeds
from muster.common.config import Section
from muster.common.lines import Limit, LineTrace, LineTraces, LinkModel, Positive
from muster.common.rates.recording import Direction

Overflow = Literal["queue", "collide", "subset"]


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
        if turn > 1 and (together.down_traces or together.up_traces):
            wait_s = _turns_s(together, *traffic, turn - 1, begun.at_s)
            own_s = together.transfers(*traffic, begun.at_s + wait_s, train_s)
            return wait_s + sum(own_s) - sum(line.transfers(*traffic, *when))
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
                "shared_queue_s": self.queue_s,
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


def _turns_s(line: LinkModel, bytes_down: float, bytes_up: float, turns: int, at_s: float) -> float:
    """Seconds of so many turns of transfers one after the other, over a rate that varies."""
    waits_s = 2 * line.rtt_s
    waits_s += line.slow_start_s(bytes_down, line.down_bps)
    waits_s += line.slow_start_s(bytes_up, line.up_bps)
    full = line.model_copy(update={"window_bytes": None})
    down_s = full.down_s(turns * bytes_down, at_s)
    return turns * waits_s + down_s + full.up_s(turns * bytes_up, at_s + down_s)


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
