"""The time between the start of a program and the moment when it is ready."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from muster.common.causes import OWN_CODE_FAILED, lack_of, memory_advice, memory_limit, memory_line
from muster.common.clock import Clock
from muster.common.errors import LaunchFailed
from muster.emulator.launch.backend import Died, EndedBeforeReady

READY_S = 120.0
"""Seconds to wait for a program to be ready. Importing torch on a busy machine takes long."""

_LAST_LINES = 15
"""The number of lines at the end of a log that a message repeats."""

SEARCHED_LINES = 100
"""The number of lines at the end of a log in which the cause is looked for. When a library aborts,
Python writes the stacks of all threads after it."""

T = TypeVar("T")


class StartingPrograms:
    """The programs of a backend that are starting.

    The death of such a program is an error for the caller that waits for the program. The death of
    any other program is reported.

    Args:
        died: called with every death that is reported.
        last_lines: returns the end of a program's log, for messages.
        poll_s: seconds between two looks whether a program is ready.
    """

    def __init__(
        self, clock: Clock, died: Died, last_lines: Callable[[str], str], poll_s: float
    ) -> None:
        self._clock = clock
        self._died = died
        self._last_lines = last_lines
        self._poll_s = poll_s
        self._starting = set[str]()
        self._ended: dict[str, int] = {}

    def begin(self, name: str) -> None:
        """Enter a program whose start begins."""
        self._starting.add(name)
        self._ended.pop(name, None)

    def ended(self, name: str, status: int) -> None:
        """Report a death, unless the program is starting."""
        if name in self._starting:
            self._ended[name] = status
        else:
            self._died(name, status)

    def ready(self, name: str) -> None:
        """Enter that a program is ready. If it has ended since, report its death."""
        self._starting.discard(name)
        if name in self._ended:
            self._died(name, self._ended.pop(name))

    async def until_ready(self, name: str, look: Callable[[], Awaitable[T | None]]) -> T:
        """Wait until a program that has begun is ready.

        Args:
            look: returns what the program reports when it is ready; None until then.

        Raises:
            EndedBeforeReady: the program ended before.
            LaunchFailed: it was not ready in time.
        """
        limit = self._clock.monotonic() + READY_S
        while True:
            # Look for the end before `look`, because a program may be ready and then end.
            ended = self._ended.get(name)
            if (found := await look()) is not None:
                self.ready(name)
                return found
            if ended is not None:
                raise EndedBeforeReady(name, ended, self._last_lines(name))
            if self._clock.monotonic() > limit:
                raise self.too_slow(name)
            await self._clock.sleep_until(self._clock.monotonic() + self._poll_s)

    def too_slow(self, name: str) -> LaunchFailed:
        return LaunchFailed(f"the {name} was not ready after {READY_S:g} s{self._last_lines(name)}")


def quoted(log: str, path: Path | None = None) -> str:
    """The end of a log, as the rest of a sentence in a message.

    Args:
        path: the file of the log, which the message names; None if the log is in no file.
    """
    lines = _telling(log.splitlines()[-SEARCHED_LINES:])
    if not lines:
        return ". It left no log" if path is None else f". It left no log ({path}){_lack(path)}"
    name = "its log" if path is None else str(path)
    return "\n".join([f". The last lines of {name}:", *(f"  | {line}" for line in lines)])


def _telling(lines: list[str]) -> list[str]:
    """The line that names a cause outside muster; the last lines if none does."""
    for line in reversed(lines):
        if OWN_CODE_FAILED in line:
            return [line]
    found = memory_line("\n".join(lines))
    if not found:
        return lines[-_LAST_LINES:]
    return [found] if memory_advice() in found else [found, memory_advice()]


def _lack(path: Path) -> str:
    """Why a program may have left no log, as the rest of a sentence: there is no room for a file,
    or it died for want of memory before it could write."""
    if lacks := lack_of(path.parent):
        return f", because its disk has no {lacks} left (df, df -i); free some"
    limit = memory_limit()
    return f". It may have found no memory: {limit}; raise the limit" if limit else ""
