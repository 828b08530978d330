"""Patience with devices: the one place that knows what the server waits for.

The server may wait for a device, or for room on the disk, or it may itself stand still, because its
process is stopped or the machine is too busy. Devices owe an answer only while it waits for them.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from muster.common.clock import Clock

log = logging.getLogger(__name__)

_LEAST_TICK_S = 0.1
_LEAST_SLEEP_S = 1e-6
"""Otherwise a rounding error could let a sleep last no time, and be repeated for ever."""


class Patience:
    """A clock that stands still while no device can be heard. Whatever decides that a device, or
    the whole fleet, has been silent for too long measures with it. It is a `Clock`.

    Its seconds are those of `clock` without those that the server stood still, and without those in
    which something waited for room on the disk.

    Attributes:
        progress_at: when a device last did something new, in its seconds.

    Args:
        tick_s: seconds between two looks at the clock. If more than two of them lie between two
            looks, the server stood still. A quarter of the shortest patience with a device is
            right, because so much remains unnoticed.
    """

    def __init__(self, clock: Clock, tick_s: float) -> None:
        self._clock = clock
        self._tick_s = max(tick_s, _LEAST_TICK_S)
        self._looked_at: float | None = None  # None: nobody looks regularly
        self._stood_still_s = 0.0
        self._waits_for_room = 0
        self._roomless_since = 0.0
        self._roomless_s = 0.0
        self.progress_at = self.monotonic()

    def renew(self) -> None:
        """Note that a device has done something new, or that the server waits for the next."""
        self.progress_at = self.monotonic()

    # --- the clock -------------------------------------------------------------------------------

    def now(self) -> float:
        return self._clock.now()

    def monotonic(self) -> float:
        running_s = self._roomless_since if self._waits_for_room else self.running_s()
        return running_s - self._roomless_s

    async def sleep_until(self, instant: float) -> None:
        await self._clock.sleep_until(instant + self._behind_s())
        while self.monotonic() < instant:
            least_s = self._tick_s if self._waits_for_room else _LEAST_SLEEP_S
            soonest = self._clock.monotonic() + least_s
            await self._clock.sleep_until(max(instant + self._behind_s(), soonest))

    def _behind_s(self) -> float:
        return self._clock.monotonic() - self.monotonic()

    def pause(self, seconds: float) -> None:
        self._clock.pause(seconds)

    # --- when it stands still --------------------------------------------------------------------

    def running_s(self) -> float:
        """Monotonic seconds without those in which the server stood still."""
        now = self._clock.monotonic()
        if self._looked_at is not None:
            gap_s = now - self._looked_at
            if gap_s > 2 * self._tick_s:
                self._stood_still_s += gap_s
                log.warning(
                    "the server stood still for %.1f s, because it was stopped or the machine was "
                    "too busy; no device is blamed for them",
                    gap_s,
                )
            self._looked_at = now
        return now - self._stood_still_s

    async def watch(self) -> None:
        """Look at the clock regularly, so that it is noticed when the server stood still."""
        self._looked_at = self._clock.monotonic()
        try:
            while True:
                await self._clock.sleep_until(self._clock.monotonic() + self._tick_s)
                self.running_s()
        finally:
            self._looked_at = None

    @contextmanager
    def without_room(self) -> Iterator[None]:
        """Stand still while something waits for room on the disk."""
        if not self._waits_for_room:
            self._roomless_since = self.running_s()
        self._waits_for_room += 1
        try:
            yield
        finally:
            self._waits_for_room -= 1
            if not self._waits_for_room:
                self._roomless_s += self.running_s() - self._roomless_since
