"""The only place that reads a clock or sleeps.

Everything that measures or waits is handed a `Clock`; tests hand in
`muster.common.testing.ManualClock`.
"""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Time as the rest of muster sees it."""

    def now(self) -> float:
        """UNIX time in seconds, for records that people compare across machines."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary instant; never goes back, for durations and timeouts."""
        ...

    async def sleep_until(self, instant: float) -> None:
        """Return once `monotonic()` has reached `instant`."""
        ...

    def pause(self, seconds: float) -> None:
        """Sleep, for who has no event loop."""
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
