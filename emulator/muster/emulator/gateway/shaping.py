"""Computes what a group's links do to bytes, without I/O or a clock.

A `Shaper` is one direction of a group: bytes pass the device's own rate, then the rate that the
group shares, then the delay. The shaper counts bytes but never sees them; its caller holds the
bytes and delivers those that the shaper says are due.

Rule 1: the caller passes the time. Slices begin and end at computed instants, not at the instants
of calls. So a caller that comes late loses nothing, and it may call as often as it likes.

Rule 2: a link is a serialiser, never a token bucket. A slice begins once its bytes have arrived and
both links are free, and it leaves when the slower link has finished. An idle link saves up nothing,
and even the first byte on it takes its time at the link's rate.

Rule 3: a flow that moved little lately goes first, in the device and in the group (the new flows of
RFC 8290), and its bytes count like all others. A heartbeat beside an upload waits for one slice,
without anyone having to mark it as a heartbeat.

    arrive -> queue of the flow -> own rate -> cells -> shared rate -> delay line -> due
              (round robin)       (start-time fair queueing)

Fairness among devices: Goyal, Vin, Cheng, Start-time fair queueing, SIGCOMM 1996. A device that is
held back by its own rate begins each slice at the virtual time of the others, or up to a slice
earlier, so that it does not lose its share while it waits behind one: this is max-min fair. After
the shared link has been idle, virtual time is the last finish tag, as in that paper, so a device
pays nothing for bytes that it moved while no other device wanted to.
"""

import heapq
import math
from collections.abc import Collection, Iterable, Mapping
from itertools import count

from muster.emulator.gateway.delays import DelayMeter
from muster.emulator.gateway.flows import (
    SLICE_BYTES,
    TURN_BYTES,
    TURN_S,
    CellLink,
    DirectionalLink,
    Flow,
    Lane,
    slice_bytes,
)
from muster.emulator.gateway.rates import Rate


class Shaper:
    """One direction of a group.

    Args:
        queue_bytes: bytes of one queue of all lanes before the shared link, first in, first out;
            None: each lane has a queue of its own, and they take turns.
    """

    def __init__(
        self,
        shared: Rate,
        seed: int = 0,
        cells: Mapping[str, CellLink] | None = None,
        queue_bytes: float | None = None,
    ) -> None:
        self.shared, self._seed = shared, seed
        self._queue_bytes = queue_bytes
        self._cells = cells or {}
        # (free at, order, cell): cells at which lanes are parked.
        self._wakes: list[tuple[float, int, CellLink]] = []
        self._lag = slice_bytes(shared.mean)
        self._free_at = -math.inf
        self._virtual = self._finish = 0.0
        self._busy = 0  # lanes with bytes before the link
        self._order = count()
        # (ready at, order, version, lane): lanes that could not begin yet.
        self._waiting: list[tuple[float, int, int, Lane]] = []
        # (0, since) for lanes that go first, (1, tag) for the others, then order, version, lane.
        self._eligible: list[tuple[int, float, int, int, Lane]] = []
        # (due at, order, bytes, flow, left at, meter); 0 bytes: the end of the flow.
        self._line: list[tuple[float, int, int, Flow, float, DelayMeter]] = []

    # -- lanes and flows ------------------------------------------------------------------------

    def lane(self, client: str, link: DirectionalLink, path: Iterable[str] = ()) -> Lane:
        """Add one direction of a device's link.

        Args:
            path: the cells through which it passes, from the inside.
        """
        cells = [self._cells[name] for name in path]
        limiting = [cell for cell in cells if not math.isinf(cell.rate.mean)]
        lane = Lane(client, self._seed, link, limiting)
        self._bound(lane)
        return lane

    def flow(self, lane: Lane, *name: str | int, owner: object = None) -> Flow:
        """Add one direction of a connection. Its name determines its random numbers."""
        return Flow(lane, (lane.client, *name), owner)

    def drop(self, flow: Flow) -> None:
        """Remove a flow and its bytes; nothing of it is due any more."""
        flow.gone = True
        if flow.queued:
            flow.lane.flows.remove(flow)
            flow.forget()
            self._busy -= not flow.lane.flows
            self._again(flow.lane)

    def change(self, lane: Lane, link: DirectionalLink, now: float) -> None:
        """Give a lane another link. Bytes that are already on the old link arrive as they would
        have."""
        lane.link = link
        lane.delays = DelayMeter()
        lane.free_at = min(lane.free_at, now)
        self._bound(lane)
        self._again(lane)

    def share(self, shared: Rate, lanes: Collection[Lane], now: float, cells: bool = True) -> None:
        """Give the group another shared rate.

        Args:
            lanes: all lanes of the group in this direction.
            cells: whether its cells have their limits.
        """
        self.shared, self._lag = shared, slice_bytes(shared.mean)
        self._free_at = min(self._free_at, now)
        for lane in lanes:
            lane.use_cells(cells)
            self._bound(lane)
            if lane.parked:
                self._again(lane)

    @property
    def _shared_queue(self) -> float | None:
        """Bytes of the queue of all lanes; None: there is none."""
        return None if math.isinf(self.shared.mean) else self._queue_bytes

    def _bound(self, lane: Lane) -> None:
        lane.bound(self.shared, self._shared_queue)

    # -- events ---------------------------------------------------------------------------------

    def arrive(self, flow: Flow, nbytes: int, now: float) -> None:
        """Queue `nbytes` (> 0) of a flow that arrived at `now`."""
        flow._arrivals.append((now, nbytes))
        lane = flow.lane
        if not flow.queued:
            self._busy += not lane.flows
            lane.flows.append(flow)
        flow.queued += nbytes
        if flow.queued > nbytes:
            return  # the flow is already in its lane
        if not lane.eligible:
            self._again(lane)
        elif not lane.first and not lane.fifo and flow.first(now):
            self._enter(lane, now, first=True)

    def end(self, flow: Flow, now: float) -> None:
        """End a flow: no more bytes come, and its end is due after the bytes that it has."""
        flow.ended = True
        if not flow.queued:
            self._fly(flow, 0, now)

    def room(self, flow: Flow, held: int) -> int:
        """Number of bytes of a flow that may be read now.

        Args:
            held: its bytes anywhere between reading and delivery, including those that are due but
                that the receiver does not take.
        """
        lane = flow.lane
        return lane.room(flow, held, self._busy + (not lane.flows))

    def advance(self, now: float) -> tuple[list[tuple[Flow, int]], list[Flow]]:
        """Let time pass until `now`.

        Returns:
            Flows with their number of bytes that are due, in order, where 0 bytes mean the end of a
            flow; and the flows whose bytes left the queue, some of them more than once.
        """
        served = self._serve(now)
        due: list[tuple[Flow, int]] = []
        line = self._line
        while line and line[0][0] <= now:
            _, _, nbytes, flow, left, delays = heapq.heappop(line)
            if not flow.gone:
                flow.flying -= nbytes
                delays.add(now - left)
                due.append((flow, nbytes))
        return due, served

    def next(self) -> float:
        """The next instant at which bytes are due or a slice can begin; infinite: there is none."""
        at = self._next_start()
        return min(at, self._line[0][0]) if self._line else at

    # -- slices ---------------------------------------------------------------------------------

    def _next_start(self) -> float:
        eligible, waiting = self._eligible, self._waiting
        while eligible and eligible[0][3] != eligible[0][4].version:
            heapq.heappop(eligible)
        if eligible:
            return self._free_at
        while waiting and waiting[0][2] != waiting[0][3].version:
            heapq.heappop(waiting)
        nexts = [heap[0][0] for heap in (waiting, self._wakes) if heap]
        return max(self._free_at, min(nexts)) if nexts else math.inf

    def _serve(self, now: float) -> list[Flow]:
        served: list[Flow] = []
        waiting, eligible = self._waiting, self._eligible
        while (at := self._next_start()) <= now:
            if at > self._free_at:  # the shared link was idle
                self._virtual, self._free_at = self._finish, at
            while waiting and waiting[0][0] <= at:
                ready_at, _, version, lane = heapq.heappop(waiting)
                if version != lane.version:
                    continue
                if lane.shared_queue is not None:
                    self._enter(lane, ready_at, first=True)  # in the order of arrival
                else:
                    self._ready(lane, at, lane.choose(at).first(at))
            awake = []
            while self._wakes and self._wakes[0][0] <= at:
                awake.append(heapq.heappop(self._wakes)[2])
            for cell in awake:
                self._unpark(cell, at)
            if not eligible:
                continue
            rank, tag, _, version, lane = heapq.heappop(eligible)
            if version != lane.version:
                continue
            if (busy := lane.busy_cell(at)) is not None:
                self._park(lane, *busy, tag)
                continue
            if rank:
                self._virtual = max(self._virtual, tag)
            served.append(self._slice(lane, at))
        return served

    def _ready(self, lane: Lane, at: float, first: bool) -> None:
        """Let a lane compete: for the innermost cell on its path, and then for the shared link."""
        if lane.path and not first and not lane.path[0].idle(at):
            lane.eligible, lane.first = True, False
            self._park(lane, 0, lane.path[0], at)
        else:
            self._enter(lane, at, first)

    def _park(self, lane: Lane, place: int, cell: CellLink, since: float) -> None:
        """Let a lane wait for a cell on its path that is busy.

        Args:
            since: the instant since which it waits, for one that goes first.
        """
        lane.parked = True
        key = (0, since) if lane.first else (1, max(cell.virtual, lane.tags[place]))
        heapq.heappush(cell.parked, (*key, next(self._order), lane.version, lane))
        self._wake(cell)

    def _wake(self, cell: CellLink) -> None:
        """Let the next lane that is parked at a cell begin when the cell is free."""
        if cell.parked and not cell.wakes:
            cell.wakes = True
            heapq.heappush(self._wakes, (cell.free_at, next(self._order), cell))

    def _unpark(self, cell: CellLink, at: float) -> None:
        """Let the next lane that is parked at a cell compete again. While the cell is idle, because
        the links above it are busy, one more competes at each slice."""
        cell.wakes = False
        while cell.parked and cell.free_at <= at:
            _, since, _, version, lane = heapq.heappop(cell.parked)
            if version == lane.version:
                self._enter(lane, since if lane.first else at, lane.first)
                break
        self._wake(cell)

    def _slice(self, lane: Lane, start: float) -> Flow:
        flow = lane.choose(start)
        turn = max(TURN_BYTES, self.shared.mean * TURN_S / self._busy)
        nbytes = int(min(lane.slice_bytes, turn, lane.turn_bytes(flow, start)))
        if lane.shared_queue is None and flow.first(start):
            nbytes = min(nbytes, max(SLICE_BYTES[0], int(flow.credit(start))))
        # The device's own link and its cells may start earlier than the shared link, as if they had
        # worked while the slice waited for other devices. Otherwise a device would get less than
        # its rate only because there are others.
        earliest = flow.usable_at()
        if lane.shared_queue is None:
            earliest = max(earliest, start - TURN_S)
        lane.free_at = lane.link.rate.finish(max(lane.free_at, earliest), nbytes)
        self._free_at = self.shared.finish(start, nbytes)
        for place, cell in enumerate(lane.path):
            lane.tags[place] = cell.serve(lane.tags[place], nbytes, earliest)
        lane.tag = max(self._virtual - self._lag, lane.tag) + nbytes
        self._finish = max(self._finish, lane.tag)
        flow.leave(nbytes, start)
        passed = max(lane.free_at, self._free_at, *(cell.free_at for cell in lane.path))
        left = flow.left_at(passed, nbytes, earliest)
        self._fly(flow, nbytes, left)
        lane.flows.remove(flow)
        if flow.queued:
            lane.flows.append(flow)
        elif flow.ended:
            self._fly(flow, 0, left)
        self._busy -= not lane.flows
        self._again(lane)
        return flow

    def _fly(self, flow: Flow, nbytes: int, left: float) -> None:
        entry = (flow.due_at(left), next(self._order), nbytes, flow, left, flow.lane.delays)
        heapq.heappush(self._line, entry)

    def _enter(self, lane: Lane, at: float, first: bool) -> None:
        """Let a lane compete for the shared link."""
        lane.version += 1
        lane.eligible, lane.first, lane.parked = True, first, False
        lane.tag = max(self._virtual - self._lag, lane.tag)
        key = (0, at) if first else (1, lane.tag)
        heapq.heappush(self._eligible, (*key, next(self._order), lane.version, lane))

    def _again(self, lane: Lane) -> None:
        """Let a lane wait until its next slice can begin, if it has bytes."""
        lane.version += 1
        lane.eligible = lane.first = lane.parked = False
        for cell in lane.path:
            self._wake(cell)
        if lane.flows:
            entry = (lane.ready_at(), next(self._order), lane.version, lane)
            heapq.heappush(self._waiting, entry)
