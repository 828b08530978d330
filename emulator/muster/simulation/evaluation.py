"""The evaluation process of a simulated server, in the same process."""

import asyncio
from collections.abc import Callable
from random import Random

from muster.server.evaluation.messages import EvaluationResult, Order, Setup
from muster.server.runtime.beside import Writer
from muster.simulation.virtual_time import VirtualLoop

_LIMIT = 1 << 26

Evaluate = Callable[[Order, bytes], EvaluationResult]
"""Evaluates a model, given its order and its body."""


def without_metrics(setup: Setup) -> Evaluate:
    """An evaluation that costs nothing: its loss is a function of the model's bytes."""

    def evaluate(order: Order, body: bytes) -> EvaluationResult:
        return EvaluationResult(order.version, order.round, float(sum(body)), None, {}, 0.1)

    return evaluate


class SimulatedEvaluation:
    """An `ProcessBeside` in memory.

    Args:
        begin: makes the function that evaluates models, from the process's configuration.
    """

    def __init__(
        self, loop: VirtualLoop, random: Random, begin: Callable[[Setup], Evaluate]
    ) -> None:
        self._loop = loop
        self._begin = begin
        self._random = random
        self._results = asyncio.StreamReader(limit=_LIMIT, loop=loop)
        self._orders = _Orders(asyncio.StreamReader(limit=_LIMIT, loop=loop))

    async def open(self) -> tuple[asyncio.StreamReader, Writer]:
        self._loop.start("evaluation", self._evaluate)
        return self._results, self._orders

    async def _evaluate(self) -> None:
        orders = self._orders.reader
        evaluate = self._begin(Setup.from_json(await orders.readline()))
        while line := await orders.readline():
            order = Order.from_json(line)
            body = await orders.readexactly(order.length)
            await asyncio.sleep(self._random.random() * 0.2)
            measured = evaluate(order, body)
            if self._orders.open:
                self._results.feed_data(measured.to_json() + b"\n")

    def die(self) -> None:
        """End as if the process was killed."""
        if self._orders.open:
            self._orders.open = False
            self._results.feed_eof()

    async def ended(self) -> str:
        return " by a signal"

    async def close(self) -> None:
        self._orders.open = False


class _Orders:
    """The server's end of the evaluation process's standard input."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self.reader = reader
        self.open = True

    def write(self, data: bytes | memoryview) -> None:
        if self.open:
            self.reader.feed_data(data)

    async def drain(self) -> None:
        if not self.open:
            raise ConnectionResetError("the evaluation is gone")

    def is_closing(self) -> bool:
        return not self.open

    def close(self) -> None:
        self.open = False
