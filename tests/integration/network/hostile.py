"""Strangers that mean harm to a port."""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def open_files() -> int:
    """Number of open files of this process."""
    return len(os.listdir("/proc/self/fd"))


async def end_of(reader: asyncio.StreamReader) -> bytes:
    """What a port says before it ends a connection."""
    said = b""
    with suppress(ConnectionError):
        while more := await reader.read(1 << 16):
            said += more
    return said


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """Reset a connection."""
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()


async def silent(streams: Streams) -> None:
    """Says nothing."""


async def slow(streams: Streams) -> None:
    """Sends the beginning of a line, or of a handshake."""
    streams[1].write(b"\x16\x03\x01\x02\x00")


async def endless_line(streams: Streams) -> None:
    """Sends a line without end."""
    with suppress(ConnectionError):
        for _ in range(64):
            streams[1].write(b'{"token": "' + b"00" * 32_768)
            await streams[1].drain()


async def garbage(streams: Streams) -> None:
    """Sends bytes that are no line."""
    with suppress(ConnectionError):
        streams[1].write(random.Random(1).randbytes(100_000))
        await streams[1].drain()


async def wrong_token(streams: Streams) -> None:
    """Guesses."""
    streams[1].write(b'{"token": "' + b"00" * 16 + b'7375"}\n')


STRANGERS: dict[str, Callable[[Streams], Awaitable[None]]] = {
    "silent": silent,
    "slow": slow,
    "endless line": endless_line,
    "garbage": garbage,
    "wrong token": wrong_token,
}
