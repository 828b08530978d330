"""A strategy that a test decides, in place of the process beside the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from muster.server.runtime.beside import Writer
from muster.server.strategy.pipe import LENGTHS, Push, StrategyEnd, message_of, replies_in
from muster.tasks.replies import DeviceReply

Replies = Mapping[int, DeviceReply]
Decide = Callable[[Sequence[Replies]], Push | StrategyEnd]
"""Says what comes next, from the replies of all rounds so far."""


class ScriptedStrategy:
    """A `ProcessBeside` in memory.

    Attributes:
        told: the replies of all rounds so far.

    Args:
        dies_after: rounds after which it dies, instead of deciding; None: it does not.
        dies_idle: it dies when it has first decided, while the round is run.
    """

    def __init__(
        self, decide: Decide, dies_after: int | None = None, dies_idle: bool = False
    ) -> None:
        self.told: list[Replies] = []
        self._decide, self._dies_after, self._dies_idle = decide, dies_after, dies_idle
        self._results, self._given = asyncio.StreamReader(), b""
        self._began, self._pipe = False, _Pipe(self._take)

    async def open(self) -> tuple[asyncio.StreamReader, Writer]:
        return self._results, self._pipe

    async def ended(self) -> str:
        return " with status -9"

    async def close(self) -> None:
        return

    def _take(self, data: bytes | memoryview) -> None:
        if not self._began:  # with the setup
            self._began = True
            self._go_on()
            return
        self._given += data
        while len(self._given) >= LENGTHS.size:
            header, body = LENGTHS.unpack_from(self._given)
            if len(self._given) < LENGTHS.size + header + body:
                return
            rest = self._given[LENGTHS.size :]
            self.told.append(replies_in(message_of(rest[:header], rest[header : header + body])))
            self._given = rest[header + body :]
            self._go_on()

    def _go_on(self) -> None:
        if len(self.told) == self._dies_after:
            self._pipe.closed = True
            self._results.feed_eof()
            return
        for part in self._decide(self.told).parts():
            self._results.feed_data(bytes(part))
        self._pipe.closed = self._dies_idle


class _Pipe:
    """The way to a strategy."""

    def __init__(self, write: Callable[[bytes | memoryview], None]) -> None:
        self._write, self.closed = write, False

    def write(self, data: bytes | memoryview) -> None:
        assert not self.closed  # a closed pipe raises one error or another
        self._write(data)

    async def drain(self) -> None:
        return

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        return
