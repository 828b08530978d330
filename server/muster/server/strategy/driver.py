"""The driver of a strategy: takes from its process what the next round shall do, and tells it what
came of the round."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from muster.common.errors import RunFailed
from muster.common.exchange import Body
from muster.common.tensors import Vector
from muster.server.runtime.beside import ProcessBeside, Writer
from muster.server.settings.process import ServerProcess
from muster.server.strategy.history import StrategyHistory
from muster.server.strategy.pipe import (
    LENGTHS,
    Push,
    StrategyEnd,
    StrategySetup,
    message_of,
    replies_parts,
    said_in,
)
from muster.tasks.replies import DeviceReply
from muster.wire.bodies import chunks

Store = Callable[[Callable[[], None]], Awaitable[None]]
"""Calls a function that writes to the disk, again and again while the disk is full."""


def setup_of_strategy(config: ServerProcess) -> StrategySetup:
    """Return the setup of a server's strategy process."""
    members = config.population
    devices = [index for index, member in enumerate(members) if member.enrolled]
    return StrategySetup(
        task=config.task, population=len(members), seed=config.seed, devices=devices
    )


class StrategyDriver:
    """Drives the process of a strategy.

    Attributes:
        push: what the strategy wants of the next round; None: it has ended.

    Args:
        history: stores the rounds of the strategy.
    """

    def __init__(
        self, setup: StrategySetup, process: ProcessBeside, history: StrategyHistory
    ) -> None:
        self.push: Push | None = None
        self._setup = setup
        self._process = process
        self._history = history
        self._replies: asyncio.StreamReader
        self._pipe: Writer

    @property
    def timeout_s(self) -> float | None:
        """Seconds after which the strategy no longer waits for a round; None: no limit."""
        return None if self.push is None else self.push.timeout_s

    async def start(self, newest: int, model: Vector) -> None:
        """Start the process, and bring it to where it was after the newest committed round.

        Args:
            newest: the number of that round; 0 before the first.
            model: the newest version.

        Raises:
            LedgerError: a stored round is missing or damaged.
            RunFailed: the process died, the app cannot be hosted, or the strategy does something
                else than before.
        """
        self._history.load(newest)
        self._replies, self._pipe = await self._process.open()
        self._pipe.write(self._setup.to_json().encode() + b"\n")
        for number in range(1, newest + 1):
            stored, said = self._history.read(number), await self._next()
            difference = stored.difference(said) if isinstance(said, Push) else "it has ended"
            if difference:
                raise _changed(number, difference)
            await self._send(replies_parts(stored.replies))
        said = await self._next()
        if isinstance(said, Push):
            if said.model.tobytes() != model.tobytes():
                raise _changed(newest + 1, "it sends another model")
            self.push = said

    async def conclude(
        self, round: int, replies: Mapping[int, DeviceReply], store: Store
    ) -> Push | StrategyEnd:
        """Tell the strategy what came of a round, and return what it says then. It has the model
        that the strategy made of the round, unless it ended without showing one.

        Raises:
            RunFailed: the process died, or the app cannot be hosted.
        """
        push, history = self.push, self._history
        assert push is not None
        await store(lambda: history.write(round, push, replies))
        await self._send(replies_parts(replies))
        said = await self._next()
        self.push = said if isinstance(said, Push) else None
        return said

    async def close(self) -> None:
        """End the process."""
        await self._process.close()

    async def _send(self, parts: list[Body]) -> None:
        try:
            for part in parts:
                for chunk in chunks(part):
                    if self._pipe.is_closing():
                        raise await self._death()
                    self._pipe.write(chunk)
                    await self._pipe.drain()
        except OSError:
            raise await self._death() from None

    async def _next(self) -> Push | StrategyEnd:
        try:
            header, body = LENGTHS.unpack(await self._replies.readexactly(LENGTHS.size))
            parts = await self._replies.readexactly(header), await self._replies.readexactly(body)
        except (asyncio.IncompleteReadError, OSError):
            raise await self._death() from None
        said = said_in(message_of(*parts))
        if isinstance(said, StrategyEnd) and said.failure:
            raise RunFailed(said.failure)
        return said

    async def _death(self) -> RunFailed:
        how = await self._process.ended()
        return RunFailed(f"the process of the strategy ended{how}: see logs/strategy.log")


def _changed(round: int, difference: str) -> RunFailed:
    return RunFailed(
        f"the strategy does something else in round {round} than before (when the round was run, "
        f"or in the app's rehearsal): {difference}. The same seed and the same replies must lead "
        f"to the same messages, so the app must draw from the global generators of Python, NumPy "
        f"and torch alone, and must not depend on the time or on files that change"
    )
