"""Fakes for tests, also for the tests of other people's plug-ins."""

import asyncio
import heapq
from collections.abc import Collection, Sequence
from itertools import count

from muster.common.credentials import TOKEN_BYTES, Credentials


class ManualClock:
    """A clock that moves only when a test calls `advance` or `pause`."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self._now = now
        self._elapsed = 0.0
        self._order = count()
        self._sleepers: list[tuple[float, int, asyncio.Event]] = []

    def now(self) -> float:
        return self._now + self._elapsed

    def monotonic(self) -> float:
        return self._elapsed

    async def sleep_until(self, instant: float) -> None:
        if instant <= self._elapsed:
            await asyncio.sleep(0)
            return
        woken = asyncio.Event()
        heapq.heappush(self._sleepers, (instant, next(self._order), woken))
        await woken.wait()

    def pause(self, seconds: float) -> None:
        self.advance(seconds)

    def set_unix(self, seconds: float) -> None:
        """Set the UNIX clock forward by `seconds`, or back. No time passes."""
        self._now += seconds

    def advance(self, seconds: float) -> None:
        """Move the clock by `seconds`, and wake the sleepers whose time has come, in order."""
        self._elapsed += seconds
        while self._sleepers and self._sleepers[0][0] <= self._elapsed:
            heapq.heappop(self._sleepers)[2].set()


def made_credentials(
    name: str, callers: Sequence[Credentials] = (), clients: Collection[str] = (), byte: int = 0
) -> Credentials:
    """Credentials of a made-up run, without TLS.

    Args:
        callers: the programs that may call, each for all of `clients`.
        byte: its token is this byte, 16 times.
    """
    known = [caller.as_caller(list(clients)) for caller in callers]
    token = bytes([byte] * TOKEN_BYTES).hex()
    return Credentials(run="run", name=name, token=token, callers=known)
