"""Connections of hostile peers without credentials, for tests and benchmarks.

No client of gRPC would write what they write, so they speak HTTP/2 by themselves (RFC 9113). Most
write something once and then hold their connection open. `HostileConnections.annoy` lets all of
them go one step further, and replaces those that the server has closed.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import cycle
from random import Random
from types import MappingProxyType
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _CONTINUATION = 0, 1, 3, 4, 9
_END_STREAM, _END_HEADERS = 1, 4

_METHOD = "/muster.v1.Fleet/Enroll"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A frame of HTTP/2."""
    head = len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big")
    return head + payload


_BEGUN: Final = PREFACE + frame(_SETTINGS, 0, 0)
"""What a client writes first."""


def _field(name: str, value: str) -> bytes:
    """A literal header field without indexing and without Huffman's code (RFC 7541, 6.2.2)."""
    return b"\0" + _text(name) + _text(value)


def _text(text: str) -> bytes:
    """A string of at most 127 bytes, or the beginning of one that is longer."""
    return bytes((min(len(text), 126),)) + text.encode()


_CALL: Final = b"".join(
    _field(name, value)
    for name, value in {
        ":method": "POST",
        ":scheme": "http",
        ":path": _METHOD,
        ":authority": "server",
        "te": "trailers",
        "content-type": "application/grpc",
    }.items()
)
"""The headers of a call."""


def _calls(*after: tuple[int, int, bytes]) -> bytes:
    """Many calls on one connection, each followed by these frames (kind, flags, payload)."""
    frames = []
    for stream in range(1, 400, 2):
        frames.append(frame(_HEADERS, _END_HEADERS, stream, _CALL))
        frames += [frame(kind, flags, stream, payload) for kind, flags, payload in after]
    return b"".join(frames)


def _giant_headers() -> bytes:
    """A call whose headers have two mebibytes and do not end."""
    piece = _field("x-giant", "y" * 126) * 100
    more = b"".join(frame(_CONTINUATION, 0, 1, piece) for _ in range(160))
    return _BEGUN + frame(_HEADERS, 0, 1, _CALL) + more


def _false_length() -> bytes:
    """A call whose message announces four gibibytes and has one."""
    announced = b"\0\xff\xff\xff\xff" + bytes(1)
    return _BEGUN + _calls((_DATA, 0, announced))


BEGINNINGS: Mapping[str, Callable[[Random], bytes]] = MappingProxyType(
    {
        "silent": lambda random: b"",
        "slow": lambda random: PREFACE[:1],
        "without settings": lambda random: PREFACE,
        "idle": lambda random: _BEGUN,
        "half a header": lambda random: _BEGUN + frame(_HEADERS, 0, 1, _CALL)[:-1],
        "headers without an end": lambda random: _BEGUN + frame(_HEADERS, 0, 1, _CALL),
        "giant headers": lambda random: _giant_headers(),
        "a frame without an end": lambda random: _BEGUN + b"\xff\xff\xff" + bytes(6),
        "false lengths": lambda random: _false_length(),
        "calls without a token": lambda random: _BEGUN + _calls((_DATA, _END_STREAM, bytes(5))),
        "calls that are reset": lambda random: _BEGUN + _calls((_RESET, 0, bytes(4))),
        "garbage": lambda random: random.randbytes(10_000),
        "a request of HTTP/1.1": lambda random: b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    }
)
"""What a hostile connection writes first, by its kind."""


class _Connection:
    def __init__(self, kind: str, writer: asyncio.StreamWriter, draining: asyncio.Task[None]):
        self.kind = kind
        self.writer = writer
        self.draining = draining


class HostileConnections:
    """Hostile connections to a port.

    Attributes:
        closed: how many connections the server has closed, by kind.
    """

    def __init__(self, host: str, port: int, seed: int = 0) -> None:
        self._address = host, port
        self._random = Random(seed)
        self._open: list[_Connection] = []
        self._trickle: Iterator[int] = cycle(PREFACE)
        self.closed: Counter[str] = Counter()

    def __len__(self) -> int:
        """The number of connections that are open."""
        return len(self._open)

    async def open(self, number: int) -> None:
        """Open connections, of every kind in turn."""
        for _, kind in zip(range(number), cycle(BEGINNINGS), strict=False):
            await self._connect(kind)

    async def _connect(self, kind: str) -> None:
        try:
            reader, writer = await asyncio.open_connection(*self._address)
        except OSError:
            return
        writer.write(BEGINNINGS[kind](self._random))
        draining = asyncio.create_task(_drain(reader))
        self._open.append(_Connection(kind, writer, draining))

    def forget_closed(self) -> list[str]:
        """Forget the connections that the server has closed; return their kinds."""
        ended = [each for each in self._open if each.draining.done()]
        self._open = [each for each in self._open if not each.draining.done()]
        for each in ended:
            each.writer.close()
        kinds = [each.kind for each in ended]
        self.closed.update(kinds)
        return kinds

    async def annoy(self) -> None:
        """Let slow peers write one more byte, and replace the connections that were closed."""
        byte = bytes((next(self._trickle),))
        for each in self._open:
            if each.kind == "slow":
                each.writer.write(byte)
        for kind in self.forget_closed():
            await self._connect(kind)

    async def close(self) -> None:
        """Close all of them."""
        for each in self._open:
            each.draining.cancel()
            each.writer.transport.abort()
        await asyncio.gather(*(each.draining for each in self._open), return_exceptions=True)
        self._open.clear()


async def _drain(reader: asyncio.StreamReader) -> None:
    """Read until the server closes the connection."""
    with suppress(OSError):
        while await reader.read(1 << 16):
            pass
