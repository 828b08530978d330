"""The wait for room on the disk: nothing is lost, and the run goes on when there is some."""

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from muster.common.clock import Clock
from muster.common.errors import RunFailed, reason_of
from muster.common.events import DiskHasRoom, DiskRanFull, Tell
from muster.common.full_disk import is_full
from muster.server.fleet.patience import Patience
from muster.server.runtime.signals import RunSignals

T = TypeVar("T")

NO_ROOM = "no-room"
"""An empty file in the run folder while the server waits for room on the disk."""

LOOK_S = 0.5
"""Seconds between two attempts to write."""


class _Unwanted(Exception):
    """Nothing has to be written any more."""


class RoomOnDisk:
    """Repeats writes that find no room, until they succeed or patience ends. Several may wait at
    the same time.

    Args:
        patience_s: seconds to wait each time that there is no room.
        patience: stands still meanwhile, because a wait for room is not the fault of a device.
        sign: an empty file that is there while the wait lasts, for other processes to see.
    """

    def __init__(
        self,
        patience_s: float,
        clock: Clock,
        tell: Tell,
        patience: Patience,
        signals: RunSignals,
        sign: Path,
    ) -> None:
        self._patience_s = patience_s
        self._clock = clock
        self._tell = tell
        self._patience = patience
        self._signals = signals
        self._sign = sign
        sign.unlink(missing_ok=True)  # of a server that was killed
        self._waits = 0
        self._since = 0.0
        self._told = False  # that the disk is full, and not yet that there is room
        # Seconds that were waited in vain for each thing, by callers that were cancelled. A device
        # that calls again and again does not renew the patience.
        self._in_vain: dict[str, float] = {}
        self._gave_up = False

    async def write(self, what: str, write: Callable[[], Awaitable[T]]) -> T:
        """Write something, and wait for room on the disk if there is none.

        Args:
            what: what is written, for the journal.
            write: is called again as long as it finds no room. A failed call must leave nothing
                behind that a later one would repeat.

        Raises:
            RunFailed: there was no room for too long, or the run is to stop.
        """
        try:
            written = await write()
        except (OSError, sqlite3.Error) as error:
            if not is_full(error) or self._gave_up:
                raise
            self._begin(what, error)
        else:
            self._in_vain.pop(what, None)
            self._tell_room(what)
            return written
        began = self._patience.running_s() - self._in_vain.get(what, 0.0)
        found_room = False
        try:
            with self._patience.without_room():
                written = await self._write_again(write, began)
            found_room = True
            return written
        finally:  # also if the call of a device that waits is cancelled
            self._end(what, began, found_room)

    async def keep(self, what: str, write: Callable[[], None], wanted: Callable[[], bool]) -> None:
        """Write what a device has sent, unless it is not wanted any more when there is room. That
        shows no room, so it does not end the wait of the run."""

        async def attempt() -> None:
            if not wanted():
                raise _Unwanted
            write()

        with suppress(_Unwanted):
            await self.write(what, attempt)

    async def _write_again(self, write: Callable[[], Awaitable[T]], began: float) -> T:
        """Try to write again and again."""
        while True:
            await self._clock.sleep_until(self._clock.monotonic() + LOOK_S)
            try:
                return await write()
            except (OSError, sqlite3.Error) as error:
                if not is_full(error):
                    raise
                self._require_patience(self._patience.running_s() - began, error)

    def _begin(self, what: str, error: Exception) -> None:
        self._waits += 1
        if self._waits == 1:
            self._since = self._patience.running_s()
            with suppress(OSError):  # a full disk still takes an empty file, mostly
                self._sign.touch()
            if not self._told:
                self._told = True
                self._tell(DiskRanFull(what, reason_of(error)))

    def _end(self, what: str, began: float, found_room: bool) -> None:
        """End one wait. What is small may find room while something else still waits for it."""
        if found_room:
            self._in_vain.pop(what, None)
        else:
            waited_s = self._patience.running_s() - began
            self._in_vain[what] = max(waited_s, self._in_vain.get(what, 0.0))
        self._waits -= 1
        if not self._waits:
            self._sign.unlink(missing_ok=True)
            if found_room:
                self._tell_room(what)

    def _tell_room(self, what: str) -> None:
        """Tell that there is room again, if nothing waits for it any more. A wait may have been
        cancelled, so the next write may be the first to find room. Once patience has ended, the
        run ends for want of room, whatever still fits."""
        if self._told and not self._waits and not self._gave_up:
            self._told = False
            self._tell(DiskHasRoom(what, self._patience.running_s() - self._since))

    def _require_patience(self, waited_s: float, error: Exception) -> None:
        if waited_s >= self._patience_s or self._signals.stop_request is not None:
            self._gave_up = True
            raise RunFailed(
                f"there was no room on the disk for {waited_s:.0f} s ({reason_of(error)}); nothing "
                f"that was acknowledged is lost. Free some space, and resume the run. "
                f"server.stall_s sets the patience"
            )
