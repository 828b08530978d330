"""Transfers over a shared link in virtual time, as fluid flows.

A link carries the bits of all transfers under way at the same time. At every moment each gets its
max-min fair share of the link's rate (Bertsekas, Gallager: Data Networks, 1992, section 6.5.2): all
get the same rate, except those whose device has a slower link of its own. This is the rule that a
gateway applies to real bytes, in slices. The two directions do not affect each other.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from muster.common.lines import Limit, LinkModel
from muster.common.shared_lines import BegunWork, SharedLine


def fair_rates(limits: Sequence[float], capacity: float) -> list[float]:
    """The max-min fair rates of flows, in their order.

    Args:
        limits: the largest rate of each flow; infinite: no limit.
        capacity: the largest sum of the rates; infinite: no limit.
    """
    if limits and min(limits) > capacity / len(limits):  # as below, but without sorting
        return [capacity / len(limits)] * len(limits)
    left, rates = capacity, [0.0] * len(limits)
    order = sorted(range(len(limits)), key=limits.__getitem__)
    for place, flow in enumerate(order):
        level = left / (len(order) - place)
        if limits[flow] > level:  # so are all limits that follow: they share what is left
            for other in order[place:]:
                rates[other] = level
            break
        rates[flow] = limits[flow]
        left -= limits[flow]
    return rates


def tree_rates(
    limits: Sequence[float],
    capacity: float,
    paths: Sequence[Sequence[str]],
    capacities: Mapping[str, float],
) -> list[float]:
    """The max-min fair rates of flows through a tree of links, in their order.

    All rates grow together. A flow stops at its limit, or when a link on its path is full.

    Args:
        limits, capacity: as for `fair_rates`; all flows pass the link of `capacity`.
        paths: the other links that each flow passes.
        capacities: the largest sum of the rates on each of these.
    """
    if not any(paths):
        return fair_rates(limits, capacity)
    rates, growing = [0.0] * len(limits), set(range(len(limits)))
    left = {**capacities, "": capacity}  # without the flows that have stopped
    through = [("", *path) for path in paths]
    while growing:
        counts = Counter(link for flow in growing for link in through[flow])
        full = {link: left[link] / count for link, count in counts.items()}
        level = min(min(full.values()), min(limits[flow] for flow in growing))
        stopped = {
            flow
            for flow in growing
            if limits[flow] <= level or any(full[link] <= level for link in through[flow])
        }
        for flow in stopped:
            rates[flow] = level
            for link in through[flow]:
                left[link] = max(0.0, left[link] - level) if math.isfinite(left[link]) else math.inf
        growing -= stopped
    return rates


class Stage(IntEnum):
    """How far the work of an assignment is. A transfer takes its bits over the link, and a round
    trip: half before the model comes, half after it, and one after the update went. Slow start
    delays a transfer as if it had the link for itself."""

    ASKING = 0
    DOWN = 1
    TRAINING = 2
    UP = 3
    ENDING = 4
    ENDED = 5


_TRANSFERS = Stage.DOWN, Stage.UP


class Work(NamedTuple):
    """The work of one assignment on a shared link.

    Attributes:
        round: the round of its call.
        train_s: modelled seconds of training.
        stage: how far it is.
        at_s: scenario seconds. During a transfer, the moment to which `left_bits` refers; otherwise
            the end of the stage, or, if it has ended, of the work.
        left_bits: during a transfer, the bits that are left of it.
    """

    round: int
    train_s: float
    stage: Stage
    at_s: float
    left_bits: float = 0.0


class _Direction:
    """The flows in one direction of the link.

    The rates change only when a flow comes or goes, or a recorded rate changes. Only then are the
    bits that are left computed, so that what has been computed does not depend on how often anybody
    looks.

    Attributes:
        left: bits that were left of every flow at `at_s`.
        next_s: when the next flow ends, or the next rate changes; infinite: never.
    """

    def __init__(self, capacity: Limit, cells: Mapping[str, Limit]) -> None:
        self._capacity = capacity
        self._cells = cells
        self._paths: dict[str, Sequence[str]] = {}
        self._limits: dict[str, Limit] = {}
        self._ends: dict[str, float] = {}
        self._rates: dict[str, float] = {}
        self.left: dict[str, float] = {}
        self.at_s = 0.0
        self.next_s = self._turns_s = math.inf

    def most_bps(self, limit: Limit, path: Sequence[str]) -> float:
        """The mean rate of a flow that has the link for itself; infinite: it takes no time."""
        return min(limit.bps, self._capacity.bps, *(self._cells[cell].bps for cell in path))

    def turns(self, now_s: float) -> bool:
        """Whether a recorded rate changes at a moment."""
        return self._turns_s <= now_s

    def ending(self, now_s: float) -> list[str]:
        """The flows that have ended at a moment."""
        return [name for name, end_s in self._ends.items() if end_s <= now_s]

    def enter(self, name: str, bits: float, limit: Limit, path: Sequence[str]) -> None:
        """Add a flow; `change` must follow."""
        self.left[name], self._limits[name], self._paths[name] = bits, limit, path

    def change(self, now_s: float, gone: Iterable[str]) -> None:
        """Compute what is left of all flows, and their new rates, when some came or are gone."""
        for name, rate in self._rates.items():
            self.left[name] = max(0.0, self.left[name] - rate * (now_s - self.at_s))
        for name in gone:
            del self.left[name], self._limits[name], self._paths[name]
        self.at_s = now_s
        capacity, turns_s = self._capacity.at(now_s)
        limits = []
        for name in self.left:
            limit, until_s = self._limits[name].at(now_s)
            limits.append(limit)
            turns_s = min(turns_s, until_s)
        cells = {}
        for cell in {cell for name in self.left for cell in self._paths[name]}:
            cells[cell], until_s = self._cells[cell].at(now_s)
            turns_s = min(turns_s, until_s)
        self._turns_s = turns_s if self.left else math.inf
        paths = [self._paths[name] for name in self.left]
        rates = tree_rates(limits, capacity, paths, cells)
        self._rates = dict(zip(self.left, rates, strict=True))
        self._ends = {
            name: now_s + left / self._rates[name] if self._rates[name] else math.inf
            for name, left in self.left.items()
        }
        self.next_s = min(self._ends.values(), default=math.inf)
        self.next_s = min(self.next_s, self._turns_s)

    def copy(self) -> "_Direction":
        """A copy that goes its own way."""
        copy = _Direction(self._capacity, self._cells)
        copy._limits, copy._ends = dict(self._limits), dict(self._ends)
        copy._paths = dict(self._paths)
        copy._rates, copy.left = dict(self._rates), dict(self.left)
        copy.at_s, copy.next_s, copy._turns_s = self.at_s, self.next_s, self._turns_s
        return copy


class FluidLink:
    """The link that the devices of a group share, in virtual time.

    Nothing that begins at a moment changes anything before it. So everything up to the present, and
    up to the next beginning of work, is exact. A predicted end after that is neither a lower nor an
    upper bound: work that begins later takes a part of the rate, but by holding back the download
    of one device it can also make room for the upload of another.

    Attributes:
        now_s: scenario seconds up to which the link was played.

    Args:
        lines: the links that devices have for themselves, by client.
        traffic: the lengths of their models and updates, in bytes.
    """

    def __init__(
        self,
        shared: SharedLine,
        lines: Mapping[str, LinkModel],
        traffic: Mapping[str, tuple[float, float]],
    ) -> None:
        self.now_s = 0.0
        self._lines = lines
        self._traffic = traffic
        self._flows = {
            Stage.DOWN: _Direction(shared.limit("down"), shared.cell_limits("down")),
            Stage.UP: _Direction(shared.limit("up"), shared.cell_limits("up")),
        }
        self._paths = {client: shared.path(line.cell) for client, line in lines.items()}
        self._work: dict[str, Work] = {}

    def begin(self, client: str, round: int, work: BegunWork) -> None:
        """Begin the work of a device now. Work that it had before must have ended.

        Args:
            work: the work if the device has its link for itself.
        """
        line = self._lines[client]
        train_s = line.training_s(work.work_s, *self._traffic[client], work.at_s)
        train_s = max(0.0, train_s + line.jitter_s(work.at_s))  # late messages delay what follows
        asking_s = line.rtt_s / 2 + self._slow_start_s(client, Stage.DOWN)
        self._work[client] = Work(round, train_s, Stage.ASKING, self.now_s + asking_s)

    def work(self) -> Mapping[str, Work]:
        """The newest work of every device that has had some."""
        found = dict(self._work)
        for direction in self._flows.values():
            for name, left in direction.left.items():
                found[name] = found[name]._replace(at_s=direction.at_s, left_bits=left)
        return found

    def restore(self, work: Mapping[str, Work], now_s: float) -> None:
        """Continue with the `work` of another link, which was played up to `now_s`."""
        self._work, self.now_s = dict(work), now_s
        for stage, direction in self._flows.items():
            names = [name for name, of_device in work.items() if of_device.stage is stage]
            for name in names:
                direction.enter(
                    name, work[name].left_bits, self._limit(name, stage), self._paths[name]
                )
            if names:
                direction.change(work[names[0]].at_s, ())

    def predicted(self, beginning: Mapping[str, tuple[int, BegunWork]]) -> Mapping[str, float]:
        """When the work of every device ends if no work begins later, by client.

        Args:
            beginning: round and work of the devices that begin now, as for `begin`.
        """
        future = self._copy()
        for client, order in beginning.items():
            future.begin(client, *order)
        future.play(math.inf)
        return {client: work.at_s for client, work in future._work.items()}

    def play(self, until_s: float) -> None:
        """Play the link up to a moment. What happens at this moment has then happened."""
        waiting = [
            (work.at_s, client)
            for client, work in self._work.items()
            if work.stage not in (*_TRANSFERS, Stage.ENDED)
        ]
        heapify(waiting)
        while True:
            next_s = min(flows.next_s for flows in self._flows.values())
            if waiting:
                next_s = min(next_s, waiting[0][0])
            if next_s > until_s or math.isinf(next_s):
                break
            self._happen(next_s, waiting)
        self.now_s = max(self.now_s, until_s)

    def _happen(self, now_s: float, waiting: list[tuple[float, str]]) -> None:
        """Let all stages end whose end has come, and the ones after them begin.

        Args:
            waiting: a heap of the ends of all stages that are no transfers, with their clients.
        """
        through = {stage: flows.ending(now_s) for stage, flows in self._flows.items()}
        turned = (stage for stage, flows in self._flows.items() if flows.turns(now_s))
        changed = {*turned, *(stage for stage, clients in through.items() if clients)}
        ended = [client for clients in through.values() for client in clients]
        while waiting and waiting[0][0] <= now_s:
            ended.append(heappop(waiting)[1])
        for client in ended:
            work = self._work[client] = self._next(client, self._work[client], now_s)
            if work.stage in _TRANSFERS:
                limit = self._limit(client, work.stage)
                self._flows[work.stage].enter(client, work.left_bits, limit, self._paths[client])
                changed.add(work.stage)
            elif work.stage is not Stage.ENDED:
                heappush(waiting, (work.at_s, client))
        for stage in changed:
            self._flows[stage].change(now_s, through[stage])

    def _next(self, client: str, work: Work, now_s: float) -> Work:
        """The work of a device when its stage has ended."""
        rtt_s, stage = self._lines[client].rtt_s, Stage(work.stage + 1)
        lasts_s = {
            Stage.TRAINING: rtt_s / 2 + work.train_s + self._slow_start_s(client, Stage.UP),
            Stage.ENDING: rtt_s,
            Stage.ENDED: 0.0,
        }
        if stage in lasts_s:
            return work._replace(stage=stage, at_s=now_s + lasts_s[stage], left_bits=0.0)
        limit, path = self._limit(client, stage), self._paths[client]
        if math.isinf(self._flows[stage].most_bps(limit, path)):
            return self._next(client, work._replace(stage=stage), now_s)
        return work._replace(stage=stage, at_s=now_s, left_bits=8 * self._bytes(client, stage))

    def _slow_start_s(self, client: str, stage: Stage) -> float:
        """Seconds by which slow start delays a transfer that has the link for itself."""
        line = self._lines[client]
        if line.window_bytes is None:
            return 0.0
        bps = self._flows[stage].most_bps(self._limit(client, stage), self._paths[client])
        return line.slow_start_s(self._bytes(client, stage), None if math.isinf(bps) else bps)

    def _bytes(self, client: str, stage: Stage) -> float:
        """The length of what a device transfers in a stage."""
        down, up = self._traffic[client]
        return down if stage is Stage.DOWN else up

    def _limit(self, client: str, stage: Stage) -> Limit:
        line = self._lines[client]
        if stage is Stage.DOWN:
            return Limit.of(line.down_bps, line.down_traces)
        return Limit.of(line.up_bps, line.up_traces)

    def _copy(self) -> "FluidLink":
        copy = FluidLink(SharedLine(), {}, {})
        copy._lines, copy._paths = self._lines, self._paths
        copy.now_s, copy._traffic, copy._work = self.now_s, self._traffic, dict(self._work)
        copy._flows = {stage: flows.copy() for stage, flows in self._flows.items()}
        return copy
