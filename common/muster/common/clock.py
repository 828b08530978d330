"""Clocks: the only module that reads a clock or sleeps.

Code that measures time or waits takes a `Clock`. Tests pass `muster.common.testing.ManualClock`.
"""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """The interface of a clock."""

    def now(self) -> float:
        """UNIX time in seconds, for records that people compare across machines."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary instant, for durations and timeouts; never goes back."""
        ...

    async def sleep_until(self, instant: float) -> None:
        """Return once `monotonic()` has reached `instant`."""
        ...

    def pause(self, seconds: float) -> None:
        """Sleep for `seconds` and block the thread, for code without an event loop."""
        ...


class WallClock:
    """The machine's own clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep_until(self, instant: float) -> None:
        await asyncio.sleep(max(0.0, instant - time.monotonic()))

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)
