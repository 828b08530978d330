"""Moves the bytes of a gateway: calls its shapers when bytes are due, and delivers them."""

import asyncio
import math
from collections.abc import Mapping
from typing import Any

from muster.common.clock import Clock
from muster.common.rates.recording import DIRECTIONS, Direction
from muster.emulator.gateway.flows import CellLink
from muster.emulator.gateway.rates import Rate
from muster.emulator.gateway.shaping import Shaper

_SLACK_S = 0.0005
"""Bytes that are due within this time are delivered now, because uvloop and epoll wake up only at
whole milliseconds."""


class Pump:
    """The shapers of both directions of a gateway, and the timers at which their bytes are due.

    Attributes:
        began: the clock's monotonic seconds when the gateway began.
        wakes, late_s: how often a timer called, and how late it was in all these cases together.

    Args:
        shared: the rate that all devices of the gateway share, by direction.
        seed: of the shapers' random numbers.
        cells: the parts of the shared link, by direction.
        queues: bytes of the queue that all devices share, by direction.
    """

    def __init__(
        self,
        shared: dict[Direction, Rate],
        seed: int,
        clock: Clock,
        cells: Mapping[Direction, Mapping[str, CellLink]] | None = None,
        queues: Mapping[Direction, float | None] | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.shapers = {
            each: Shaper(
                shared[each],
                seed,
                cells[each] if cells else {},
                queues[each] if queues else None,
            )
            for each in DIRECTIONS
        }
        self._clock = clock
        self.began = clock.monotonic()
        self.wakes, self.late_s = 0, 0.0
        self._timers: dict[Direction, tuple[float, asyncio.TimerHandle]] = {}

    def now(self) -> float:
        """Seconds since the gateway began."""
        return self._clock.monotonic() - self.began

    def close(self) -> None:
        """Cancel the timers."""
        for _, timer in self._timers.values():
            timer.cancel()

    def pump(self, direction: Direction) -> None:
        """Advance the shaper to the current time, and deliver the bytes that are due."""
        shaper = self.shapers[direction]
        due, served = shaper.advance(self.now() + _SLACK_S)
        halves: dict[Any, None] = {}  # an ordered set
        for flow, nbytes in due:
            half: Any = flow.owner
            if not flow.gone:
                half.deliver(nbytes)
                halves[half] = None
        for half in halves:
            if not half.flow.gone:
                half.flush()
        for flow in served:
            if not flow.gone:
                half = flow.owner
                half.relieve()
        self._arm(direction)

    def _arm(self, direction: Direction) -> None:
        """Set a timer that calls `pump` at the next event. A call that comes early does no harm."""
        at = self.shapers[direction].next()
        armed = self._timers.get(direction)
        if armed is not None:
            if armed[0] <= at and not armed[1].cancelled():
                return
            armed[1].cancel()
            del self._timers[direction]
        if not math.isinf(at):
            delay = max(0.0, at - self.now())
            timer = self.loop.call_later(delay, self._woken, direction)
            self._timers[direction] = at, timer

    def _woken(self, direction: Direction) -> None:
        armed = self._timers.pop(direction, None)
        if armed is not None:
            self.wakes += 1
            self.late_s += max(0.0, self.now() - armed[0])
        self.pump(direction)
