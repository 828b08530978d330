"""What a group's link does to bytes, with no I/O and no clock in it.

A `Shaper` is one direction of a group: the devices' own rates under the rate that they share, then
the delay. It counts bytes and never sees them; whoever holds them delivers what it says is due.

Rule 1: time is handed in. Slices begin and end at instants that are computed, not at those at which
somebody looked: a driver that comes late makes it good exactly, and may ask as it likes.

Rule 2: a link is a serialiser, never a bucket. A slice begins once its bytes are there and both
links are free, and leaves at the end of the slower one: being idle earns nothing, and the first
byte of an idle link waits for its own turn of the bits.

Rule 3: who moved little lately goes first, in the device and in the group (the new flows of
RFC 8290), and pays like everybody. A heartbeat beside an upload waits for one slice, and nobody had
to say which is which.

    arrive -> queue of the flow -> own rate -> shared rate -> delay line -> due
              (round robin)       (start-time fair queueing)

Fairness among devices: Goyal, Vin, Cheng, Start-time fair queueing, SIGCOMM 1996. A device that its
own rate holds back begins each slice at the virtual time of the others and so never waits behind
them for what it may have: max-min fair. When the shared link has been idle, virtual time is the
last finish tag, as in that paper: what a device moved while nobody else wanted to costs it nothing.
"""

import heapq
import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from muster.common import seeds
from muster.emulator.gateway.rates import Loss, Rate, Stalls, Unlimited

if TYPE_CHECKING:
    from numpy.random import Generator

_SLICE_S = 0.02
_SLICE_BYTES = 512, 16 * 1024
"""A slice is what the link takes in _SLICE_S, within these: low rates stay smooth."""

_TURN_S = 0.25
_TURN_BYTES = 1460
"""With many devices slices are smaller, down to a packet, so that each has its turn in _TURN_S:
else a thousand of them would get what they get in few large pieces, seconds apart."""

_QUEUE_S = 0.05
_QUEUE_BYTES = 16 * 1024, 4 * 1024 * 1024
"""What a flow may have before the link: what passes in _QUEUE_S, within these."""

_LINE_BYTES = 64 * 1024, 4 * 1024 * 1024
"""What a flow may have in the delay line: at least the first; the second where no rate says more
than 1.5 times what passes in the delay."""

_CREDIT_BYTES = 4 * 1024
_CREDIT_BPS = 2 * 1024
_CREDIT_SHARE = 0.1
"""A flow goes first while it has credit: at most _CREDIT_BYTES, refilled at _CREDIT_BPS bytes per
second or that share of its rate. A flow in debt of as much is bulk."""


@dataclass(frozen=True, slots=True)
class DirectionalLink:
    """One direction of a device's link."""

    rate: Rate = field(default_factory=Unlimited)
    delay_s: float = 0.0
    jitter_s: float = 0.0
    """Standard deviation of what is added to the delay where it is positive."""
    loss: Loss | None = None

    @property
    def plain(self) -> bool:
        """Whether it neither limits nor delays."""
        return math.isinf(self.rate.mean) and not (self.delay_s or self.jitter_s or self.loss)


class Flow:
    """One direction of one connection.

    Attributes:
        queued: bytes before the link.
        flying: bytes on the link or in the delay line.
    """

    __slots__ = (
        "_arrivals",
        "_credit",
        "_credit_at",
        "_draws",
        "_last",
        "_loss",
        "_stalled_until",
        "_stalls",
        "ended",
        "flying",
        "gone",
        "lane",
        "name",
        "owner",
        "queued",
    )

    def __init__(self, lane: "Lane", name: tuple[str | int, ...], owner: object) -> None:
        self.lane, self.name, self.owner = lane, name, owner
        self.queued = self.flying = 0
        self.ended = self.gone = False
        self._arrivals: deque[tuple[float, int]] = deque()
        self._credit, self._credit_at = float(_CREDIT_BYTES), 0.0
        self._stalled_until = self._last = -math.inf
        self._loss: Loss | None = None
        self._stalls: Stalls | None = None
        self._draws: Generator | None = None

    def usable_at(self) -> float:
        """When its first bytes could begin to leave; it has some."""
        return max(self._arrivals[0][0], self._stalled_until)

    def usable(self, instant: float) -> int:
        """Bytes that had arrived at an instant."""
        if self._stalled_until > instant:
            return 0
        total = 0
        for at, nbytes in self._arrivals:
            if at > instant or total >= _SLICE_BYTES[1]:
                break
            total += nbytes
        return total

    def credit(self, instant: float) -> float:
        """What it may send before others, bytes; negative: a debt."""
        if instant > self._credit_at:
            earned = (instant - self._credit_at) * self.lane.credit_bps
            self._credit = min(_CREDIT_BYTES, self._credit + earned)
            self._credit_at = instant
        return self._credit

    def first(self, instant: float) -> bool:
        """Whether it goes before those that moved much lately."""
        return self.credit(instant) >= min(_SLICE_BYTES[0], self.usable(instant))

    def leave(self, nbytes: int, start: float) -> None:
        """`nbytes` of the queue begin to leave."""
        self.queued -= nbytes
        self.flying += nbytes
        self._credit = max(-_CREDIT_BYTES, self.credit(start) - nbytes)
        while nbytes:
            at, there = self._arrivals.popleft()
            if there > nbytes:
                self._arrivals.appendleft((at, there - nbytes))
            nbytes -= min(there, nbytes)

    def due_at(self, left: float, nbytes: int) -> float:
        """When what has left the link at `left` is due, in order; stalls begin after it."""
        way = self.lane.way
        if way.loss is not self._loss:
            self._loss = way.loss
            self._stalls = (
                Stalls(way.loss, self.lane.seed, "loss", *self.name) if way.loss else None
            )
        if self._stalls is not None and (stall := self._stalls.after(nbytes)):
            self._stalled_until = left + stall
        delay = way.delay_s
        if way.jitter_s:
            if self._draws is None:
                self._draws = seeds.stream(self.lane.seed, "jitter", *self.name)
            delay += max(0.0, way.jitter_s * float(self._draws.standard_normal()))
        self._last = max(self._last, left + delay)
        return self._last

    def forget(self) -> None:
        """Drop what it has before the link."""
        self._arrivals.clear()
        self.queued = 0


class Lane:
    """One direction of a device."""

    def __init__(self, client: str, seed: int, way: DirectionalLink) -> None:
        self.client, self.seed, self.way = client, seed, way
        self.free_at = -math.inf
        self.tag = 0.0  # start-time fair queueing: where its next slice begins, in bytes
        self.flows: deque[Flow] = deque()  # those with bytes before the link
        self.version = 0  # of its entry in a heap; older ones are void
        self.eligible = False
        self.first = False  # its entry is among those that go first
        self.slice_bytes = self.queue_bytes = self.line_bytes = 0
        self.credit_bps = 0.0

    def bound(self, shared: Rate) -> None:
        """Set what depends on the rates."""
        mean, reach_s = min(self.way.rate.mean, shared.mean), self.way.delay_s
        self.slice_bytes = int(_within(mean * _SLICE_S, _SLICE_BYTES))
        self.queue_bytes = int(_within(mean * _QUEUE_S, _QUEUE_BYTES))
        least, unlimited = _LINE_BYTES
        reach_s += 3 * self.way.jitter_s
        # What is on the way at its best: one sized by the mean would hold back a fading link.
        peak = min(self.way.rate.peak, shared.peak)
        self.line_bytes = unlimited if math.isinf(peak) else int(max(least, 1.5 * peak * reach_s))
        self.credit_bps = min(_CREDIT_BPS, _CREDIT_SHARE * mean)

    def ready_at(self) -> float:
        """When its next slice could begin if it were alone; it has bytes."""
        return max(self.free_at, min(flow.usable_at() for flow in self.flows))

    def choose(self, instant: float) -> Flow:
        """Whose slice is next, among the flows that can send at an instant; there is one."""
        able = [flow for flow in self.flows if flow.usable_at() <= instant]
        return next((flow for flow in able if flow.first(instant)), able[0])


class Shaper:
    """One direction of a group."""

    def __init__(self, shared: Rate, seed: int = 0) -> None:
        self.shared, self._seed = shared, seed
        self._free_at = -math.inf
        self._virtual = self._finish = 0.0
        self._busy = 0  # lanes with bytes before the link
        self._order = count()
        # (ready at, order, version, lane): those that could not begin yet.
        self._waiting: list[tuple[float, int, int, Lane]] = []
        # (0, since) for those that go first, (1, tag) for the others, then order, version, lane.
        self._eligible: list[tuple[int, float, int, int, Lane]] = []
        # (due at, order, bytes, flow); 0 bytes: the end of the flow.
        self._line: list[tuple[float, int, int, Flow]] = []

    # -- who is there ---------------------------------------------------------------------------

    def lane(self, client: str, way: DirectionalLink) -> Lane:
        """Add one direction of a device."""
        lane = Lane(client, self._seed, way)
        lane.bound(self.shared)
        return lane

    def flow(self, lane: Lane, *name: str | int, owner: object = None) -> Flow:
        """Add one direction of a connection; what is random about it is drawn by its name."""
        return Flow(lane, (lane.client, *name), owner)

    def drop(self, flow: Flow) -> None:
        """Forget a flow and what it has; nothing of it is due any more."""
        flow.gone = True
        if flow.queued:
            flow.lane.flows.remove(flow)
            flow.forget()
            self._busy -= not flow.lane.flows
            self._again(flow.lane)

    def change(self, lane: Lane, way: DirectionalLink, now: float) -> None:
        """Give a device another link. What is on the old one arrives as it would have."""
        lane.way = way
        lane.free_at = min(lane.free_at, now)
        lane.bound(self.shared)
        self._again(lane)

    def share(self, shared: Rate, lanes: Collection[Lane], now: float) -> None:
        """Give the group another shared rate.

        Args:
            lanes: all of the group.
        """
        self.shared = shared
        self._free_at = min(self._free_at, now)
        for lane in lanes:
            lane.bound(shared)

    # -- what happens ---------------------------------------------------------------------------

    def arrive(self, flow: Flow, nbytes: int, now: float) -> None:
        """Bytes (> 0) of a flow are there."""
        flow._arrivals.append((now, nbytes))
        lane = flow.lane
        if not flow.queued:
            self._busy += not lane.flows
            lane.flows.append(flow)
        flow.queued += nbytes
        if flow.queued > nbytes:
            return  # the lane has known of the flow
        if not lane.eligible:
            self._again(lane)
        elif not lane.first and flow.first(now):
            self._enter(lane, now, first=True)

    def end(self, flow: Flow, now: float) -> None:
        """No more bytes of a flow come; its end is due after what it has."""
        flow.ended = True
        if not flow.queued:
            self._fly(flow, 0, now)

    def room(self, flow: Flow, held: int) -> int:
        """Bytes of a flow that may be read.

        Args:
            held: bytes of it that are anywhere between reading and delivery, also those that are
                due and that the receiver does not take.
        """
        lane = flow.lane
        return min(lane.queue_bytes - flow.queued, lane.queue_bytes + lane.line_bytes - held)

    def advance(self, now: float) -> tuple[list[tuple[Flow, int]], list[Flow]]:
        """Let time pass until `now`.

        Returns:
            What is due, in order, as flows and bytes, 0 for the end of a flow; and the flows of
            which something left the queue, some of them more than once.
        """
        served = self._serve(now)
        due: list[tuple[Flow, int]] = []
        line = self._line
        while line and line[0][0] <= now:
            _, _, nbytes, flow = heapq.heappop(line)
            if not flow.gone:
                flow.flying -= nbytes
                due.append((flow, nbytes))
        return due, served

    def next(self) -> float:
        """The next instant at which something is due or a slice can begin; infinite: none."""
        at = self._next_start()
        return min(at, self._line[0][0]) if self._line else at

    # -- inside ---------------------------------------------------------------------------------

    def _next_start(self) -> float:
        eligible, waiting = self._eligible, self._waiting
        while eligible and eligible[0][3] != eligible[0][4].version:
            heapq.heappop(eligible)
        if eligible:
            return self._free_at
        while waiting and waiting[0][2] != waiting[0][3].version:
            heapq.heappop(waiting)
        return max(self._free_at, waiting[0][0]) if waiting else math.inf

    def _serve(self, now: float) -> list[Flow]:
        served: list[Flow] = []
        waiting, eligible = self._waiting, self._eligible
        while (at := self._next_start()) <= now:
            if at > self._free_at:  # it was idle
                self._virtual = self._finish
            while waiting and waiting[0][0] <= at:
                _, _, version, lane = heapq.heappop(waiting)
                if version == lane.version:
                    self._enter(lane, at, lane.choose(at).first(at))
            rank, tag, _, version, lane = heapq.heappop(eligible)
            if version == lane.version:
                if rank:
                    self._virtual = tag
                served.append(self._slice(lane, at))
        return served

    def _slice(self, lane: Lane, start: float) -> Flow:
        flow = lane.choose(start)
        turn = max(_TURN_BYTES, self.shared.mean * _TURN_S / self._busy)
        nbytes = int(min(lane.slice_bytes, turn, flow.usable(start)))
        if flow.first(start):
            nbytes = min(nbytes, max(_SLICE_BYTES[0], int(flow.credit(start))))
        # The own link went on while the slice waited for others of the group, for one slice: else
        # a device would get less than its rate for no other reason than being in company.
        own_start = max(lane.free_at, flow.usable_at(), start - _SLICE_S)
        lane.free_at = lane.way.rate.finish(own_start, nbytes)
        self._free_at = self.shared.finish(start, nbytes)
        lane.tag = max(self._virtual, lane.tag) + nbytes
        self._finish = max(self._finish, lane.tag)
        flow.leave(nbytes, start)
        self._fly(flow, nbytes, max(lane.free_at, self._free_at))
        lane.flows.remove(flow)
        if flow.queued:
            lane.flows.append(flow)
        elif flow.ended:
            self._fly(flow, 0, max(lane.free_at, self._free_at))
        self._busy -= not lane.flows
        self._again(lane)
        return flow

    def _fly(self, flow: Flow, nbytes: int, left: float) -> None:
        due_at = flow.due_at(left, nbytes)
        heapq.heappush(self._line, (due_at, next(self._order), nbytes, flow))

    def _enter(self, lane: Lane, at: float, first: bool) -> None:
        """Let a lane compete for the shared link."""
        lane.version += 1
        lane.eligible, lane.first = True, first
        lane.tag = max(self._virtual, lane.tag)
        key = (0, at) if first else (1, lane.tag)
        heapq.heappush(self._eligible, (*key, next(self._order), lane.version, lane))

    def _again(self, lane: Lane) -> None:
        """Have a lane wait for when its next slice can begin, if it has any."""
        lane.version += 1
        lane.eligible = lane.first = False
        if lane.flows:
            entry = (lane.ready_at(), next(self._order), lane.version, lane)
            heapq.heappush(self._waiting, entry)


def _within(value: float, bounds: tuple[int, int]) -> float:
    return min(max(value, bounds[0]), bounds[1])
