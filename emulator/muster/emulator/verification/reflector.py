"""Plain TCP at both ends of a link, so that only the link limits the rate.

A client that connects sends a header: one byte with the reflector's command for this connection,
and eight bytes with the tag of the measurement. The commands are

    SINK    the reflector counts the bytes that arrive
    SOURCE  the reflector sends as much as the link takes
    ECHO    the reflector sends back the bytes that arrive

Transfers end with a reset of both ends, the receiver's first. If a gateway does not read because
its link is full, it notices the sender's reset only after all bytes that it holds have passed,
which use a part of the link until then. But the next byte for a receiver that is gone fails at
once.
"""

import asyncio
import os
import socket
import struct
from abc import ABC, abstractmethod
from enum import IntEnum
from itertools import count
from typing import TypeVar

from muster.common.clock import Clock
from muster.common.errors import Interrupted, Unreachable
from muster.common.rates.recording import Direction
from muster.emulator.verification.meter import RateMeter

_HEADER = struct.Struct("!BQ")
_BLOCK = bytes(64 << 10)
_READ_BYTES = 256 << 10
_SEND_BUFFER_BYTES = 64 << 10
"""The kernel's send buffer. In a larger one, bytes would only wait longer."""

ECHO_BYTES = 16
_CONNECT_S = 10.0


class ReflectorCommand(IntEnum):
    """What the reflector does on a connection."""

    SINK = 1
    SOURCE = 2
    ECHO = 3


E = TypeVar("E", bound="_End")


class _End(asyncio.BufferedProtocol, ABC):
    """One end of a connection, which reads into a buffer of its own and writes while it can."""

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._transport: asyncio.Transport | None = None
        self._filling = self._paused = self._scheduled = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        connected = transport.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.set_write_buffer_limits(high=len(_BLOCK))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.arrived(self._buffer[:nbytes])

    def connection_lost(self, exc: Exception | None) -> None:
        self._filling = False
        self._transport = None

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._fill()

    @abstractmethod
    def arrived(self, data: memoryview) -> None:
        """Handle bytes that arrived. Their memory is reused after this call."""

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def fill(self) -> None:
        """From now on, send as much as the connection takes."""
        self._filling = True
        self._fill()

    def _fill(self) -> None:
        # Write one block per turn of the loop, so that a fast receiver does not block the others.
        self._scheduled = False
        if self._filling and not self._paused:
            self.write(_BLOCK)
            self._again()

    def _again(self) -> None:
        if not self._scheduled and not self._paused:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._fill)

    def reset(self) -> None:
        """Reset the connection; bytes under way are lost."""
        self._filling = False
        if self._transport is not None:
            self._transport.abort()


class _Served(_End):
    """The reflector's end of a connection."""

    def __init__(self, reflector: "Reflector") -> None:
        super().__init__()
        self._reflector = reflector
        self._header = b""
        self._kind: int | None = None
        self._tag = 0
        self._meter: RateMeter | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._reflector.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._reflector.connections.discard(self)
        if self._meter is not None:
            self._meter.broken = True

    def arrived(self, data: memoryview) -> None:
        if self._kind is None:
            missing = _HEADER.size - len(self._header)
            self._header += data[:missing]
            data = data[missing:]
            if len(self._header) < _HEADER.size:
                return
            self._kind, self._tag = _HEADER.unpack(self._header)
            self._begin(self._tag)
        if self._kind == ReflectorCommand.SINK and self._meter is not None and data:
            self._meter.add(len(data), self._reflector.clock.monotonic())
        elif self._kind == ReflectorCommand.ECHO and data:
            self._reflector.turned_at[self._tag] = self._reflector.clock.monotonic()
            self.write(bytes(data))

    def _begin(self, tag: int) -> None:
        self._reflector.ends[tag] = self
        if self._kind == ReflectorCommand.SOURCE:
            self.fill()
        elif self._kind == ReflectorCommand.SINK:
            self._meter = self._reflector.meters.get(tag)
        elif self._kind != ReflectorCommand.ECHO:
            self.reset()


class Reflector:
    """The server at the other end of measured links; listens on a free port of `host`."""

    def __init__(self, clock: Clock, host: str = "127.0.0.1") -> None:
        self._host = host
        self.clock = clock
        self._server: asyncio.Server | None = None
        self.address = ""
        self._tags = count(1)
        self.meters: dict[int, RateMeter] = {}
        self.connections: set[_Served] = set()
        self.ends: dict[int, _Served] = {}
        self.turned_at: dict[int, float] = {}
        """When the last bytes of an echo came that were sent back, by the echo's tag."""

    async def start(self) -> str:
        """Listen; return the address, host:port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Served(self), self._host, 0)
        self.address = f"{self._host}:{self._server.sockets[0].getsockname()[1]}"
        return self.address

    def tag(self) -> int:
        """The tag of a new measurement."""
        return next(self._tags)

    def meter(self) -> tuple[int, RateMeter]:
        """Return the tag of a new measurement, and the meter of the bytes that arrive for it."""
        tag, meter = self.tag(), RateMeter()
        self.meters[tag] = meter
        return tag, meter

    def forget(self, tag: int) -> None:
        """End the connection of a measurement."""
        self.meters.pop(tag, None)
        self.turned_at.pop(tag, None)
        if (end := self.ends.pop(tag, None)) is not None:
            end.reset()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            for connection in list(self.connections):
                connection.reset()
            await self._server.wait_closed()


class _Device(_End):
    """The device's end of a transfer."""

    def __init__(self, meter: RateMeter, receives: bool, clock: Clock) -> None:
        super().__init__()
        self._meter, self._receives, self._clock = meter, receives, clock

    def arrived(self, data: memoryview) -> None:
        if self._receives:
            self._meter.add(len(data), self._clock.monotonic())

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._meter.broken = True


class Bulk:
    """One transfer over plain TCP that sends as much as the link takes.

    Attributes:
        meter: counts the bytes at the receiver.
    """

    def __init__(self, reflector: Reflector, host: str, port: int, direction: Direction) -> None:
        self._where, self._direction, self._reflector = (host, port), direction, reflector
        self._tag, self.meter = reflector.meter()
        self._end = _Device(self.meter, direction == "down", reflector.clock)

    async def start(self) -> None:
        """Connect and begin the transfer.

        Raises:
            Unreachable: the gateway does not accept the connection.
        """
        if self._direction == "up":
            await _connected(self._where, ReflectorCommand.SINK, self._tag, self._end)
            self._end.fill()
        else:
            await _connected(self._where, ReflectorCommand.SOURCE, self._tag, self._end)

    async def close(self) -> None:
        self._reflector.forget(self._tag)
        self._end.reset()


class RawEcho(_End):
    """A connection whose small messages are sent back.

    Args:
        reflector: what sends them back, if its instants matter.
    """

    def __init__(
        self, host: str, port: int, clock: Clock, reflector: Reflector | None = None
    ) -> None:
        super().__init__()
        self._where, self._clock, self._reflector = (host, port), clock, reflector
        self._tag = reflector.tag() if reflector is not None else 0
        self._missing = 0
        self._back: asyncio.Future[float] | None = None

    async def start(self) -> None:
        """Connect.

        Raises:
            Unreachable: the gateway does not accept the connection.
        """
        await _connected(self._where, ReflectorCommand.ECHO, self._tag, self)

    async def close(self) -> None:
        if self._reflector is not None:
            self._reflector.forget(self._tag)
        self.reset()

    @property
    def turned_at(self) -> float:
        """When the last message came to the reflector."""
        assert self._reflector is not None
        return self._reflector.turned_at[self._tag]

    async def round_trip_s(self, patience_s: float) -> float:
        """Measure the round trip of a small message, in seconds.

        Raises:
            TransportError: it did not come back within `patience_s`, or the connection broke.
        """
        if self._transport is None:
            raise Interrupted("the connection broke")
        self._back = asyncio.get_running_loop().create_future()
        self._missing = ECHO_BYTES
        began = self._clock.monotonic()
        self.write(os.urandom(ECHO_BYTES))
        try:
            return await asyncio.wait_for(self._back, patience_s) - began
        except TimeoutError:
            raise Interrupted(f"no answer within {patience_s:.1f} s") from None

    def arrived(self, data: memoryview) -> None:
        self._missing -= len(data)
        if self._missing <= 0 and self._back is not None and not self._back.done():
            self._back.set_result(self._clock.monotonic())

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._back is not None and not self._back.done():
            self._back.set_exception(Interrupted("the connection broke"))


async def _connected(where: tuple[str, int], kind: ReflectorCommand, tag: int, end: E) -> E:
    host, port = where
    try:
        async with asyncio.timeout(_CONNECT_S):
            await asyncio.get_running_loop().create_connection(lambda: end, host, port)
    except (OSError, TimeoutError) as error:
        raise Unreachable(f"{host}:{port} does not accept connections: {error}") from None
    end.write(_HEADER.pack(kind, tag))
    return end
