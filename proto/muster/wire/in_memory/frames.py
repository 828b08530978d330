"""The frames of a connection, and the two halves of a stream."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import grpc

Metadata = Sequence[tuple[str, str | bytes]]
"""What travels beside the messages of a call: (key, value) pairs."""

WINDOW_BYTES = 64 << 10
"""Bytes of a stream that may be in flight or unread before its writer must wait."""


class FrameKind(StrEnum):
    HEADERS = "headers"
    """From the client: a call begins; payload (method, metadata, seconds until its deadline)."""

    METADATA = "metadata"
    """From the server: initial metadata."""

    MESSAGE = "message"
    HALF_CLOSE = "half-close"
    """From the client: no message follows."""

    STATUS = "status"
    """From the server: the call is over; payload (code, details, trailing metadata)."""

    RESET = "reset"
    """From the client: it cancelled the call."""

    WINDOW = "window"
    """From the reader: room for more; payload is the number of bytes read."""


class Frame(NamedTuple):
    """One frame of one stream."""

    stream: int
    kind: FrameKind
    payload: Any = None


Send = Callable[[FrameKind, Any], None]
"""Puts a frame of a stream on its connection."""


class Outgoing:
    """The writing half of a stream."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._unread = 0
        self._open = True
        self._room: asyncio.Future[None] | None = None

    async def write(self, data: bytes) -> bool:
        """Send a message and return when there is room for the next one.

        Returns False if the stream ended before the far end took the message.
        """
        if not self._open:
            return False
        self._unread += len(data)
        self._send(FrameKind.MESSAGE, data)
        while self._open and self._unread >= WINDOW_BYTES:
            self._room = asyncio.get_running_loop().create_future()
            await self._room
        return self._open

    def was_read(self, size: int) -> None:
        self._unread -= size
        self._wake()

    def close(self) -> None:
        """Close the half: further messages are not sent, and a waiting writer goes on."""
        self._open = False
        self._wake()

    def _wake(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)


class Incoming:
    """The reading half of a stream."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._messages: deque[bytes] = deque()
        self._ended = False
        self._read_bytes = 0
        self._reader: asyncio.Future[None] | None = None

    @property
    def drained(self) -> bool:
        """Whether no message is left."""
        return not self._messages

    async def read(self) -> bytes | None:
        """The next message; None if no more will come."""
        while not self._messages and not self._ended:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        if not self._messages:
            return None
        data = self._messages.popleft()
        self._read_bytes += len(data)
        if self._read_bytes >= WINDOW_BYTES // 2:
            self._send(FrameKind.WINDOW, self._read_bytes)
            self._read_bytes = 0
        return data

    def arrive(self, data: bytes) -> None:
        self._messages.append(data)
        self._wake()

    def end(self, drop: bool = False) -> None:
        """End the half: no message follows. With `drop`, unread messages are lost."""
        self._ended = True
        if drop:
            self._messages.clear()
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


def rpc_error(code: grpc.StatusCode, details: str, trailing: Metadata = ()) -> grpc.aio.AioRpcError:
    """The error of a call that ended with `code`."""
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details)
