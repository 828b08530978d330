"""Processes beside the server, which do what would keep its event loop busy or import torch."""

import asyncio
import json
import os
import socket
import sys
from pathlib import Path
from typing import BinaryIO, Protocol

from muster.common.exchange import Body
from muster.common.processes import child_command, child_environment

LONGEST_LINE = 64 * 2**20
"""The most bytes of one line of a process. A result of the evaluation has about 60 bytes for every
device that is measured."""


class Input(Protocol):
    """Has what the server sends."""

    def readline(self) -> bytes: ...

    def read(self, nbytes: int, /) -> bytes: ...


class Output(Protocol):
    """Takes what the server gets."""

    def write(self, data: Body, /) -> object: ...

    def flush(self) -> None: ...


class Writer(Protocol):
    """The methods of `asyncio.StreamWriter` that the server uses."""

    def write(self, data: bytes | memoryview) -> None: ...

    async def drain(self) -> None: ...

    def is_closing(self) -> bool: ...

    def close(self) -> None: ...


class ProcessBeside(Protocol):
    """Starts a process beside the server, or connects to it."""

    async def open(self) -> tuple[asyncio.StreamReader, Writer]:
        """Return the streams from and to the process.

        Raises:
            RunFailed: the process cannot be reached.
        """
        ...

    async def ended(self) -> str:
        """Return how the process ended, for a message; empty if that cannot be known.

        It is called after the process's stream has ended.
        """
        ...

    async def close(self) -> None:
        """End the process, or the connection to it."""
        ...


class SpawnedProcess:
    """A process that is a child of the server.

    Args:
        module: its program.
        log: the file for its standard error.
    """

    def __init__(self, module: str, log: Path) -> None:
        self._module = module
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def open(self) -> tuple[asyncio.StreamReader, Writer]:
        log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *child_command(self._module),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=LONGEST_LINE,
                env=child_environment(),
            )
        finally:
            os.close(log)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdout, self._process.stdin

    async def ended(self) -> str:
        return "" if self._process is None else f" with status {await self._process.wait()}"

    async def close(self) -> None:
        if self._process is None:
            return
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


class ForkedProcess:
    """A process that the nursery of this machine forks for the server, because torch and the task
    are loaded there. It ends when the server closes its streams.

    Args:
        nursery: descriptor of the socket at which the nursery takes orders of the server.
        module: its program, with the function `serve_forked`.
        name: its name, and that of its log.
    """

    def __init__(self, nursery: int, module: str, name: str) -> None:
        self._nursery = nursery
        self._order = json.dumps({"name": name, "module": module}).encode()
        self._writer: asyncio.StreamWriter | None = None
        self._status: socket.socket | None = None

    async def open(self) -> tuple[asyncio.StreamReader, Writer]:
        ours, theirs = socket.socketpair()
        self._status, told = socket.socketpair()
        with theirs, told, socket.socket(fileno=os.dup(self._nursery)) as nursery:
            socket.send_fds(nursery, [self._order], [theirs.fileno(), told.fileno()])
        reader, self._writer = await asyncio.open_connection(sock=ours, limit=LONGEST_LINE)
        return reader, self._writer

    async def ended(self) -> str:
        if self._status is None:
            return ""
        reader, writer = await asyncio.open_connection(sock=self._status)
        self._status = None
        status = await reader.read()
        writer.close()
        return f" with status {status.decode()}" if status else ""

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        if self._status is not None:
            self._status.close()


def results_pipe() -> BinaryIO:
    """Return the standard output of this process, the pipe to the server. What is printed from now
    on goes to standard error, because the code of an app may print."""
    sys.stdout.flush()
    pipe = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return pipe
