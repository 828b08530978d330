"""The server's hand on the evaluation process."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from muster.common.clock import Clock
from muster.common.errors import RunFailed
from muster.common.processes import PARENT
from muster.common.tensors import Vector
from muster.server.evaluation import Measured, Order, Setup
from muster.wire.bodies import body_view, chunks

_BACKLOG = 8
"""Models that may wait; then the rounds wait, so that a slow evaluation cannot fill the memory."""

_REACH_S = 120.0
_AGAIN_S = 0.2
"""Patience with an evaluation that somebody else starts, and between looks whether it is there."""

_LONGEST_LINE = 64 * 2**20
"""Bytes of one result: some 60 for every device that is measured."""


class Evaluator:
    """Evaluates models in the order submitted.

    Args:
        done: awaited with each result.
        log: where the process's standard error goes.
        address: host:port of an evaluation that somebody else has started; None: a process is
            started.
    """

    def __init__(
        self,
        setup: Setup,
        done: Callable[[Measured], Awaitable[None]],
        log: Path,
        clock: Clock,
        address: str | None = None,
    ) -> None:
        self._setup = setup
        self._done = done
        self._log = log
        self._clock = clock
        self._address = address
        self._process: asyncio.subprocess.Process | None = None
        self._waiting: set[int] = set()
        self._room = asyncio.Semaphore(_BACKLOG)
        self._idle = asyncio.Event()
        self._idle.set()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        """Start the process, or reach it; models may be submitted while it still imports torch.

        Raises:
            RunFailed: nothing listens at the address.
        """
        reader = await (self._spawned() if self._address is None else self._reached(self._address))
        self._pipe.write(self._setup.to_json().encode() + b"\n")
        self._reading = asyncio.create_task(self._read(reader))

    async def _reached(self, address: str) -> asyncio.StreamReader:
        host, _, port = address.rpartition(":")
        limit = self._clock.monotonic() + _REACH_S
        while True:
            try:
                reader, self._pipe = await asyncio.open_connection(
                    host, int(port), limit=_LONGEST_LINE
                )
            except OSError as error:
                if self._clock.monotonic() > limit:
                    raise RunFailed(f"no evaluation listens at {address}: {error}") from None
                await self._clock.sleep_until(self._clock.monotonic() + _AGAIN_S)
            else:
                return reader

    async def _spawned(self) -> asyncio.StreamReader:
        log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "muster.server.evaluation",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=_LONGEST_LINE,
                env={**os.environ, PARENT: str(os.getpid())},
            )
        finally:
            os.close(log)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._pipe = self._process.stdin
        return self._process.stdout

    async def submit(self, version: int, round: int, model: Vector) -> None:
        """Queue a model; waits while the backlog is full.

        Raises:
            RunFailed: the process died.
        """
        await self._or_failed(self._room.acquire())
        if self._pipe.is_closing() or self._failed.done():
            await self._failed
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
            await self._failed

    def waiting(self) -> set[int]:
        """Versions submitted and not yet evaluated."""
        return self._waiting

    async def drained(self) -> None:
        """Return when nothing waits.

        Raises:
            RunFailed: the process died.
        """
        await self._or_failed(self._idle.wait())

    async def close(self) -> None:
        """End the process."""
        self._reading.cancel()
        if self._process is None:
            self._pipe.close()
            return
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def _read(self, results: asyncio.StreamReader) -> None:
        while line := await _line(results):
            measured = Measured.from_json(line)
            await self._done(measured)
            self._waiting.discard(measured.version)
            self._room.release()
            if not self._waiting:
                self._idle.set()
        how = "" if self._process is None else f" with status {await self._process.wait()}"
        error = RunFailed(f"the evaluation process ended{how}: see its log")
        if not self._failed.done():
            self._failed.set_exception(error)

    async def _or_failed(self, wanted: Any) -> None:
        task = asyncio.ensure_future(wanted)
        await asyncio.wait({task, self._failed}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await self._failed


async def _line(results: asyncio.StreamReader) -> bytes:
    """The next result; nothing when there will be none."""
    try:
        return await results.readline()
    except OSError:  # a connection that was reset
        return b""
