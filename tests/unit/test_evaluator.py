"""The server's side of the evaluation: whatever fails there reaches whoever waits."""

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from muster.common.errors import RunFailed
from muster.server.evaluation.evaluator import Evaluator
from muster.server.evaluation.messages import EvaluationResult, Setup

MODEL = np.zeros(3, np.float32)
SETUP = Setup(task="{}", population=1, seed=1)


class Pipe:
    """The way to an evaluation."""

    def __init__(self) -> None:
        self.sent = b""

    def write(self, data: bytes | memoryview) -> None:
        self.sent += data

    async def drain(self) -> None:
        return

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        return


class Process:
    """An evaluation in the test's hands."""

    def __init__(self) -> None:
        self.results, self.pipe = asyncio.StreamReader(), Pipe()

    async def open(self) -> tuple[asyncio.StreamReader, Pipe]:
        return self.results, self.pipe

    async def ended(self) -> str:
        return " with status 7"

    async def close(self) -> None:
        return

    def measured(self, version: int) -> None:
        line = EvaluationResult(version, version, 0.5, None, {}, 0.1).to_json()
        self.results.feed_data(line + b"\n")


async def started(done: Callable[[EvaluationResult], Awaitable[None]]) -> tuple[Evaluator, Process]:
    process = Process()
    evaluator = Evaluator(SETUP, done, process)
    await evaluator.start()
    return evaluator, process


async def keep(measured: EvaluationResult) -> None:
    return


async def full(measured: EvaluationResult) -> None:
    raise OSError("the disk is full")


async def test_it_is_drained_when_every_model_was_measured() -> None:
    evaluator, process = await started(keep)
    await evaluator.submit(1, 1, MODEL)
    await evaluator.submit(2, 2, MODEL)
    process.measured(1)
    process.measured(2)
    await evaluator.drained()
    assert not evaluator.waiting()
    await evaluator.close()


async def test_a_result_that_cannot_be_entered_fails_whoever_waits() -> None:
    evaluator, process = await started(full)
    await evaluator.submit(1, 1, MODEL)
    process.measured(1)
    with pytest.raises(OSError, match="the disk is full"):
        await evaluator.drained()
    with pytest.raises(OSError, match="the disk is full"):
        await evaluator.submit(2, 2, MODEL)
    await evaluator.close()


async def test_a_line_that_is_no_result_fails_whoever_waits() -> None:
    evaluator, process = await started(keep)
    await evaluator.submit(1, 1, MODEL)
    process.results.feed_data(b"Segmentation fault\n")
    with pytest.raises(ValueError, match="Expecting value"):
        await evaluator.drained()
    await evaluator.close()


async def test_a_process_that_ends_fails_whoever_waits() -> None:
    evaluator, process = await started(keep)
    await evaluator.submit(1, 1, MODEL)
    process.results.feed_eof()
    with pytest.raises(RunFailed, match="the evaluation process ended with status 7"):
        await evaluator.drained()
    await evaluator.close()
