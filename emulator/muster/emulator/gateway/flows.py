"""The flows of devices through one direction of a shared link, and the devices\x27 own links."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from muster.common import seeds
from muster.common.jitter import JitterDistribution, delays
from muster.emulator.gateway.delays import DelayMeter
from muster.emulator.gateway.loss import PACKET_BYTES, Loss, Stalls, packets_of
from muster.emulator.gateway.rates import Rate, Unlimited
from muster.emulator.gateway.windows import CongestionWindow, SlowStart

if TYPE_CHECKING:
    from numpy.random import Generator


SLICE_S = 0.02
SLICE_BYTES = 512, 16 * 1024
"""A slice is the number of bytes that pass the link in SLICE_S, between these two bounds, so that
low rates stay smooth."""

TURN_S = 0.25
TURN_BYTES = 1460
"""With many devices slices are smaller, down to a packet, so that each device has its turn in
TURN_S. Otherwise a thousand devices would get their bytes in few large pieces, seconds apart."""

_QUEUE_S = 0.05
_QUEUE_BYTES = 16 * 1024, 4 * 1024 * 1024
"""A flow may have as many bytes before the link as pass in _QUEUE_S, between these two bounds,
unless the link has a queue of another length."""

LEAST_SLICES = 2
"""A queue holds at least so many slices. With less, the link would wait for the gateway."""

_LINE_BYTES = 64 * 1024, 4 * 1024 * 1024
"""A flow may have 1.5 times the bytes that pass in the delay in the delay line, but at least the
first number; without a limit of the rate, the second."""

_CREDIT_BYTES = 4 * 1024
_CREDIT_BPS = 2 * 1024
_CREDIT_SHARE = 0.1
"""A flow goes first while it has credit. It has at most _CREDIT_BYTES, and earns _CREDIT_BPS bytes
per second or the share _CREDIT_SHARE of its rate, whichever is less. Its debt is at most
_CREDIT_BYTES, too."""


@dataclass(frozen=True, slots=True)
class DirectionalLink:
    """One direction of a device's link."""

    rate: Rate = field(default_factory=Unlimited)
    delay_s: float = 0.0
    jitter_s: float = 0.0
    jitter: JitterDistribution = "late"
    loss: Loss | None = None
    queue_bytes: float | None = None
    """The bytes that may wait before the link; None: what a flow should have."""
    fifo: bool = False
    """Whether the bytes of all flows wait in one queue, in the order of their arrival. Otherwise
    each flow has a queue of its own."""
    slow_start: SlowStart | None = None

    @property
    def plain(self) -> bool:
        """Whether the link neither limits nor delays."""
        return isinstance(self.rate, Unlimited) and not (
            self.delay_s or self.jitter_s or self.loss or self.slow_start
        )


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
        "_held_until",
        "_last",
        "_loss",
        "_paced_until",
        "_stalls",
        "_start",
        "_window",
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
        self._held_until = self._paced_until = self._last = -math.inf
        self._start: SlowStart | None = None
        self._window: CongestionWindow | None = None
        self._loss: Loss | None = None
        self._stalls: Stalls | None = None
        self._draws: Generator | None = None

    def usable_at(self) -> float:
        """The instant at which the first queued bytes could begin to leave. There must be some."""
        at = max(self._arrivals[0][0], self._held_until)
        if self.lane.link.slow_start is None:
            return at
        return max(at, self._congestion(self.lane.link.slow_start).opens_at())

    @property
    def head(self) -> float:
        """The instant at which the first queued bytes arrived. There must be some."""
        return self._arrivals[0][0]

    def usable(self, instant: float) -> int:
        """Queued bytes that had arrived at an instant and may leave."""
        if self._held_until > instant:
            return 0
        arrived = self.arrived(instant)
        if self.lane.link.slow_start is None:
            return arrived
        return int(min(arrived, self._congestion(self.lane.link.slow_start).room(instant)))

    def _congestion(self, start: SlowStart) -> CongestionWindow:
        """The congestion window; a new one if the link begins otherwise than before."""
        if self._window is None or start != self._start:
            self._start = start
            self._window = CongestionWindow(start, self.lane.holds_bytes)
        return self._window

    def arrived(self, instant: float) -> int:
        """Queued bytes that had arrived at an instant, as far as they matter to a slice."""
        total = 0
        for at, nbytes in self._arrivals:
            if at > instant or total >= SLICE_BYTES[1]:
                break
            total += nbytes
        return total

    def credit(self, instant: float) -> float:
        """Bytes that the flow may send before others; negative: a debt."""
        if instant > self._credit_at:
            earned = (instant - self._credit_at) * self.lane.credit_bps
            self._credit = min(_CREDIT_BYTES, self._credit + earned)
            self._credit_at = instant
        return self._credit

    def first(self, instant: float) -> bool:
        """Whether the flow goes before flows that moved much lately."""
        return self.credit(instant) >= min(SLICE_BYTES[0], self.usable(instant))

    def leave(self, nbytes: int, start: float) -> None:
        """Let `nbytes` of the queue begin to leave at `start`."""
        self.queued -= nbytes
        self.flying += nbytes
        self._credit = max(-_CREDIT_BYTES, self.credit(start) - nbytes)
        while nbytes:
            at, there = self._arrivals.popleft()
            if there > nbytes:
                self._arrivals.appendleft((at, there - nbytes))
            nbytes -= min(there, nbytes)

    def left_at(self, passed: float, nbytes: int, start: float) -> float:
        """The instant at which `nbytes` have left the link for good.

        Loss bounds the rate of a connection. If one of the packets is lost with a time-out, this
        and all that follows waits for it.

        Args:
            passed: when they passed the rates of the link.
            start: when they began to.
        """
        left = self._resent_at(passed, nbytes, start)
        if self.lane.link.slow_start is not None:
            self._congestion(self.lane.link.slow_start).sent(nbytes, start, left)
        return left

    def _resent_at(self, left: float, nbytes: int, start: float) -> float:
        loss = self.lane.link.loss
        if loss is not self._loss:
            self._loss = loss
            self._stalls = Stalls(loss, self.lane.seed, "loss", *self.name) if loss else None
        if loss is None or self._stalls is None:
            return left
        self._paced_until = self._held_until = max(self._paced_until, start) + nbytes / loss.bound
        last = not self.queued
        stalls, stalled_s = self._stalls.begun(nbytes, last)
        self.lane.stalls += stalls
        self.lane.stalled_s += stalled_s
        self.lane.packets += packets_of(nbytes, last)
        left = max(left, self._paced_until) + stalled_s
        if stalls:
            self._held_until = left
        return left

    def due_at(self, left: float) -> float:
        """The instant at which bytes that left the link at `left` are due. Bytes stay in order."""
        link = self.lane.link
        delay = link.delay_s
        if link.jitter_s:
            if self._draws is None:
                self._draws = seeds.stream(self.lane.seed, "jitter", *self.name)
            delay = float(delays(link.jitter, delay, link.jitter_s, self._draws, 1)[0])
        self._last = max(self._last, left + delay)
        return self._last

    def forget(self) -> None:
        """Drop the queued bytes."""
        self._arrivals.clear()
        self.queued = 0


class CellLink:
    """One direction of a part of the shared link that some devices share.

    Lanes that cannot begin because it is busy are parked at it, and the one that is next begins
    when it is free. Their order is that of start-time fair queueing on this link alone.

    Attributes:
        virtual, finish: its virtual time, and its largest finish tag, in bytes.
        parked: (0, since) for lanes that go first, (1, tag) for the others, then order, version,
            lane.
        wakes: whether it is known when the next of them begins.
    """

    __slots__ = ("finish", "free_at", "parked", "rate", "virtual", "wakes")

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self.free_at = -math.inf
        self.virtual = self.finish = 0.0
        self.parked: list[tuple[int, float, int, int, Lane]] = []
        self.wakes = False

    def idle(self, instant: float) -> bool:
        """Whether a lane can pass at an instant without waiting for another."""
        return not self.parked and self.free_at <= instant

    def serve(self, tag: float, nbytes: int, earliest: float) -> float:
        """Let a slice pass; return the next tag of its lane.

        Args:
            tag: the tag of the lane on this link.
            earliest: when it could have begun here if it had not waited for other links.
        """
        if earliest > self.free_at and not self.parked:  # it was idle
            self.virtual = self.finish
        self.virtual = max(self.virtual, tag)
        self.free_at = self.rate.finish(max(self.free_at, earliest), nbytes)
        self.finish = max(self.finish, self.virtual + nbytes)
        return self.virtual + nbytes


class Lane:
    """One direction of a device's link, with its flows.

    Attributes:
        path: the cells through which it passes, from the inside; `tags` has its tag on each.
        fifo: whether its bytes leave in the order of their arrival, whatever their flow.
        shared_queue: bytes of the queue of all lanes; None: each lane has one of its own.
        delays: of what was sent since the link changed last.
        stalls: number of stalls that loss has begun; they last for `stalled_s` together.
        packets: number of packets that it could have lost.
    """

    def __init__(
        self, client: str, seed: int, link: DirectionalLink, cells: Sequence[CellLink] = ()
    ) -> None:
        self.client, self.seed, self.link = client, seed, link
        self._cells = cells
        self.path = cells
        self.tags = [0.0] * len(cells)
        self.free_at = -math.inf
        self.tag = 0.0  # start-time fair queueing: the start tag of its next slice, in bytes
        self.flows: deque[Flow] = deque()  # flows with bytes before the link
        self.version = 0  # of its entry in a heap; entries of older versions are void
        self.eligible = False
        self.first = False  # whether its entry is among those that go first
        self.parked = False  # whether it is eligible, and waits for a cell
        self.slice_bytes = self.queue_bytes = self.line_bytes = self.refill_bytes = 0
        self.holds_bytes = self.credit_bps = 0.0
        self.fifo = link.fifo
        self.shared_queue: float | None = None
        self.delays, self.stalls, self.stalled_s, self.packets = DelayMeter(), 0, 0.0, 0.0

    def bound(self, shared: Rate, shared_queue: float | None = None) -> None:
        """Set the sizes and the credit that depend on the rates."""
        self.shared_queue = shared_queue
        self.fifo = self.link.fifo or shared_queue is not None
        above = [shared, *(cell.rate for cell in self.path)]
        bound = self.link.loss.bound if self.link.loss else math.inf
        mean = min(self.link.rate.mean, bound, *(rate.mean for rate in above))
        self.slice_bytes = slice_bytes(mean)
        self.queue_bytes = int(_within(mean * _QUEUE_S, _QUEUE_BYTES))
        self.refill_bytes = self.queue_bytes // 2
        if (asked := self.link.queue_bytes) is not None:
            self.queue_bytes = int(max(asked, LEAST_SLICES * self.slice_bytes))
            self.refill_bytes = min(self.queue_bytes // 2, self.slice_bytes)
        if shared_queue is not None:
            self.refill_bytes = min(self.slice_bytes, PACKET_BYTES)
            self.queue_bytes = int(max(shared_queue, self.link.queue_bytes or 0.0))
        least, unlimited = _LINE_BYTES
        reach_s = self.link.delay_s + 3 * self.link.jitter_s
        # Size the delay line by the peak rate: sized by the mean, it would hold back a fading link.
        peak = min(self.link.rate.peak, *(rate.peak for rate in above))
        self.line_bytes = unlimited if math.isinf(peak) else int(max(least, 1.5 * peak * reach_s))
        self.credit_bps = min(_CREDIT_BPS, _CREDIT_SHARE * mean)
        rtt_s = self.link.slow_start.rtt_s if self.link.slow_start else 0.0
        line_bytes = self.line_bytes if math.isinf(peak) else 2 * peak * rtt_s
        self.holds_bytes = self.queue_bytes + line_bytes

    def room(self, flow: Flow, held: int, lanes: int = 1) -> int:
        """Number of bytes of a flow that may be read now.

        In a queue for all flows, each may have a packet also if the queue is full, because a packet
        that a real queue drops comes again.

        Args:
            held: its bytes anywhere between reading and delivery.
            lanes: number of lanes that are in the queue of all, of which each has the same part.
        """
        queue_bytes = self.queue_bytes
        if self.shared_queue is not None:
            part = max(self.shared_queue / lanes, LEAST_SLICES * PACKET_BYTES)
            queue_bytes = int(max(part, self.link.queue_bytes or 0.0))
        room = queue_bytes - flow.queued
        if self.fifo:
            others = sum(other.queued for other in self.flows if other is not flow)
            room = max(room - others, PACKET_BYTES - flow.queued)
        return min(room, queue_bytes + self.line_bytes - held)

    def use_cells(self, used: bool) -> None:
        """Let it pass through its cells, or not; `bound` must follow."""
        self.path = self._cells if used else ()

    def busy_cell(self, instant: float) -> tuple[int, CellLink] | None:
        """The first cell on its path that is busy at an instant, and its place there; None: none
        is."""
        return next(
            ((place, cell) for place, cell in enumerate(self.path) if cell.free_at > instant), None
        )

    def ready_at(self) -> float:
        """The instant at which the next slice could begin if there were no other lanes. There must
        be bytes."""
        return max(self.free_at, min(flow.usable_at() for flow in self.flows))

    def choose(self, instant: float) -> Flow:
        """The flow of the next slice, among the flows that can send at an instant. There must be
        one."""
        able = [flow for flow in self.flows if flow.usable_at() <= instant]
        if self.fifo:
            return min(able, key=lambda flow: flow.head)
        return next((flow for flow in able if flow.first(instant)), able[0])

    def turn_bytes(self, flow: Flow, instant: float) -> int:
        """Bytes of the chosen flow that may leave at an instant before another flow's turn."""
        usable = flow.usable(instant)
        if not self.fifo or len(self.flows) == 1:
            return usable
        next_head = min(other.head for other in self.flows if other is not flow)
        return min(usable, max(1, flow.arrived(max(flow.head, next_head))))


def slice_bytes(mean: float) -> int:
    """The size of a slice on a link with so many bytes per second."""
    return int(_within(mean * SLICE_S, SLICE_BYTES))


def _within(value: float, bounds: tuple[int, int]) -> float:
    return min(max(value, bounds[0]), bounds[1])
