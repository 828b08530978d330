"""The evaluator: sends models from the server to the evaluation process and reads the results."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from muster.common.causes import EVALUATION_ENDED
from muster.common.clock import Clock
from muster.common.credentials import EVALUATION, Credentials
from muster.common.errors import RunFailed
from muster.common.tensors import Vector
from muster.server.evaluation.messages import EvaluationResult, Order, Setup
from muster.server.runtime.beside import LONGEST_LINE, ProcessBeside, Writer
from muster.wire.bodies import body_view, chunks
from muster.wire.connections.streams import open_stream

_BACKLOG = 8
"""The most models that may wait. Then the rounds wait, so that a slow evaluation cannot fill the
memory."""

_CONNECT_S = 120.0
"""Seconds for which the server tries to reach an evaluation process that is started separately."""

_RETRY_S = 0.2
"""Seconds between two such attempts."""


class RemoteEvaluation:
    """An evaluation process that is started separately, in its own container.

    Args:
        address: host:port at which it listens.
        credentials: those of the server.
    """

    def __init__(self, address: str, credentials: Credentials, clock: Clock) -> None:
        self._address = address
        self._credentials = credentials
        self._clock = clock
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> tuple[asyncio.StreamReader, Writer]:
        host, _, port = self._address.rpartition(":")
        limit = self._clock.monotonic() + _CONNECT_S
        while True:
            try:
                reader, self._writer = await open_stream(
                    host, int(port), self._credentials, EVALUATION, LONGEST_LINE
                )
            except OSError as error:
                if self._clock.monotonic() > limit:
                    raise RunFailed(f"no evaluation listens at {self._address}: {error}") from None
                await self._clock.sleep_until(self._clock.monotonic() + _RETRY_S)
            else:
                return reader, self._writer

    async def ended(self) -> str:
        return ""

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class Evaluator:
    """Evaluates models in the order in which they are submitted.

    A failure of the process, of its results or of `done` is raised in every call that waits.

    Attributes:
        failed: a future that gets the exception of such a failure.

    Args:
        setup: the process's configuration.
        done: awaited with each result.
    """

    def __init__(
        self,
        setup: Setup,
        done: Callable[[EvaluationResult], Awaitable[None]],
        process: ProcessBeside,
    ) -> None:
        self._setup = setup
        self._done = done
        self._process = process
        self._waiting: set[int] = set()
        self._room = asyncio.Semaphore(_BACKLOG)
        self._idle = asyncio.Event()
        self._idle.set()
        self._reading: asyncio.Task[None] | None = None
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        """Start the process or connect to it. Models may be submitted while it still imports torch.

        Raises:
            RunFailed: the process cannot be reached.
        """
        reader, self._pipe = await self._process.open()
        self._pipe.write(self._setup.to_json().encode() + b"\n")
        self._reading = asyncio.create_task(self._read(reader))

    async def submit(self, version: int, round: int, model: Vector) -> None:
        """Queue a model. Wait while the backlog is full.

        Raises:
            RunFailed: the process died.
            Exception: what `done` raised for an earlier model.
        """
        await self._or_failed(self._room.acquire())
        if self._pipe.is_closing() or self.failed.done():
            await self._failure()
        self._waiting.add(version)
        self._idle.clear()
        body = body_view(model)
        order = Order(version=version, round=round, length=len(body))
        self._pipe.write(order.to_json().encode() + b"\n")
        try:
            for chunk in chunks(body):
                self._pipe.write(chunk)
                await self._pipe.drain()
        except OSError:
            await self._failure()

    def waiting(self) -> set[int]:
        """The versions that were submitted and are not evaluated yet."""
        return self._waiting

    async def drained(self) -> None:
        """Wait until all submitted models are evaluated.

        Raises:
            RunFailed: the process died.
            Exception: what `done` raised for an earlier model.
        """
        await self._or_failed(self._idle.wait())

    async def close(self) -> None:
        """End the process."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self.failed.done():
            self.failed.exception()  # retrieved, so that asyncio does not log it as lost
        await self._process.close()

    async def _read(self, results: asyncio.StreamReader) -> None:
        """Read results until the stream ends. Any failure is kept in `failed`."""
        try:
            while line := await _line(results):
                measured = EvaluationResult.from_json(line)
                await self._done(measured)
                self._waiting.discard(measured.version)
                self._room.release()
                if not self._waiting:
                    self._idle.set()
            how = await self._process.ended()
            raise RunFailed(f"{EVALUATION_ENDED}{how}")
        except Exception as error:
            self.failed.set_exception(error)

    async def _failure(self) -> None:
        """Wait for the failure that ended the process, and raise it."""
        await asyncio.shield(self.failed)

    async def _or_failed(self, wanted: Any) -> None:
        """Await `wanted`, unless the evaluation fails before.

        Raises:
            Exception: the evaluation has failed.
        """
        task = asyncio.ensure_future(wanted)
        try:
            await asyncio.wait({task, self.failed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            task.cancel()
        if self.failed.done():
            await self._failure()


async def _line(results: asyncio.StreamReader) -> bytes:
    """Return the line of the next result; empty if there will be none."""
    try:
        return await results.readline()
    except OSError:  # the connection was reset
        return b""
