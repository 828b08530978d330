"""The queue of uploads and downloads: it limits how many run at once and ends stalled ones.

Rule 1: a session has one transfer. A newer one ends the older, so that a device that comes back
does not wait behind its own broken call.

Rule 2: only new bytes keep a turn alive, and every turn has a time limit. If a device does not
finish its transfer in one turn, it resumes it in its next turn, after the others that wait.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from muster.common.clock import Clock
from muster.common.errors import Interrupted
from muster.common.lines import LinkModel
from muster.server.fleet.devices import ConnectedPack
from muster.wire.channels import IN_FLIGHT_BYTES


class Turn:
    """One transfer, from the moment it joins the queue.

    Attributes:
        ended: why the server ended it early; empty while it may go on.
        moved_at: when its newest bytes moved, in monotonic seconds of the queue's clock.
    """

    def __init__(self, limit: asyncio.Timeout) -> None:
        self.ended = ""
        self.moved_at = 0.0
        self._limit = limit

    def end(self, why: str) -> None:
        """Interrupt the task that runs the transfer, wherever it waits."""
        if not self.ended:
            self.ended = why
            self._limit.reschedule(asyncio.get_running_loop().time())


class TransferQueue:
    """Gives turns to transfers, in the order in which they ask.

    Args:
        at_once: turns that run at the same time.
        idle_s: seconds without new bytes after which a turn ends. For a turn over an emulated link,
            `LinkModel.patience_s` is added, so that a slow link does not count as a halt.
        lines: each device's link in the scenario's model, at the rate that it has when `at_once`
            transfers run.
    """

    def __init__(
        self, at_once: int, idle_s: float, lines: Mapping[str, LinkModel], clock: Clock
    ) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._idle_s = idle_s
        self._lines = lines
        self._clock = clock
        self._turns: dict[ConnectedPack, Turn] = {}

    @asynccontextmanager
    async def turn(self, pack: ConnectedPack, nbytes: int) -> AsyncIterator[Turn]:
        """Wait for a turn and hold it. The caller sets `moved_at` whenever new bytes have moved.

        Args:
            nbytes: bytes that are left to transfer.

        Raises:
            Interrupted: the turn was ended early; the device may ask for another.
        """
        self.end(pack, "a newer transfer of its session began")
        limit = asyncio.timeout(None)
        turn = Turn(limit)
        watching: asyncio.Task[None] | None = None
        try:
            async with limit:
                self._turns[pack] = turn
                async with self._free:
                    watching = asyncio.create_task(self._watch(turn, pack, nbytes))
                    yield turn
        except TimeoutError:
            if not turn.ended:
                raise
            raise Interrupted(f"the transfer was ended: {turn.ended}; resume it") from None
        finally:
            if self._turns.get(pack) is turn:
                del self._turns[pack]
            if watching is not None:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)

    def end(self, pack: ConnectedPack, why: str) -> None:
        """End the transfer of a session, if it has one."""
        if (turn := self._turns.get(pack)) is not None:
            turn.end(why)

    async def _watch(self, turn: Turn, pack: ConnectedPack, nbytes: int) -> None:
        clock, line = self._clock, self._lines[next(iter(pack.devices))]
        idle_s = self._idle_s + line.patience_s(IN_FLIGHT_BYTES)
        most_s = idle_s + line.patience_s(nbytes)
        turn.moved_at = began = clock.monotonic()
        while clock.monotonic() < (limit := min(turn.moved_at + idle_s, began + most_s)):
            await clock.sleep_until(limit)
        halted = turn.moved_at + idle_s <= limit
        turn.end(f"no new bytes for {idle_s:g} s" if halted else f"it took {most_s:g} s")
