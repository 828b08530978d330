"""The evaluation process of a simulated server: it measures nothing, but answers in time."""

import asyncio
from random import Random
from typing import Any

from muster.emulator.simulation.virtual_time import VirtualLoop
from muster.server.evaluation import Measured, Order

_LIMIT = 1 << 26


class SimulatedEvaluation:
    """An `EvaluationProcess` in memory, whose loss is a function of the model's bytes."""

    def __init__(self, loop: VirtualLoop, random: Random) -> None:
        self._loop = loop
        self._random = random
        self._alive = True
        self._results = asyncio.StreamReader(limit=_LIMIT, loop=loop)
        self._orders = asyncio.StreamReader(limit=_LIMIT, loop=loop)
        self._task: asyncio.Task[Any] | None = None

    async def open(self) -> tuple[asyncio.StreamReader, "SimulatedEvaluation"]:
        _, self._task = self._loop.start("evaluation", self._evaluate)
        return self._results, self

    async def _evaluate(self) -> None:
        await self._orders.readline()  # the settings
        while line := await self._orders.readline():
            order = Order.from_json(line)
            body = await self._orders.readexactly(order.length)
            await asyncio.sleep(self._random.random() * 0.2)
            measured = Measured(order.version, order.round, float(sum(body)), None, {}, 0.1)
            if self._alive:
                self._results.feed_data(measured.to_json() + b"\n")

    def die(self) -> None:
        """It was killed."""
        if self._alive:
            self._alive = False
            self._results.feed_eof()

    async def ended(self) -> str:
        return " by a signal"

    # --- as a writer -----------------------------------------------------------------------------

    def write(self, data: bytes | memoryview) -> None:
        if self._alive:
            self._orders.feed_data(data)

    async def drain(self) -> None:
        if not self._alive:
            raise ConnectionResetError("the evaluation is gone")

    def is_closing(self) -> bool:
        return not self._alive

    async def close(self) -> None:
        self._alive = False
