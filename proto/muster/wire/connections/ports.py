"""A port for connections that carry lines, and what strangers may cost there.

A connection begins as that of a stranger. Within `PortLimits.patience_s` it must do the handshake
of TLS, if there is TLS, and show who its caller is. If too many strangers are there, the one that
came first is dropped, not the newest: a silent stranger keeps its place until then, so that a
few of them could otherwise keep out everybody else. A caller needs its place for milliseconds only.

Every caller may have a number of connections. The newest is refused beyond it.

A refused connection gets the reason, unless it is still without TLS. By default this is a line,
{"error": a sentence}. With "again": true, the caller may be welcome later.
"""

import asyncio
import json
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from muster.common.clock import Clock
from muster.common.concurrency import run_beside
from muster.common.credentials import CredentialsSource
from muster.common.errors import MusterError, RemoteProtocolError, Unreachable
from muster.common.sparse_log import SparseLog
from muster.wire.connections.encryption import renewed_context, require_encrypted

log = logging.getLogger("muster.ports")

_BUFFER_BYTES = 4096
"""A connection is not read from while it has twice as many bytes that nobody has asked for."""

_CLOSING_S = 1.0
"""Seconds for the last bytes of a connection and the end of TLS."""

_ACCEPT_AGAIN_S = 0.5
_BACKLOG = 128

_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 20),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)


@dataclass(frozen=True, slots=True)
class PortLimits:
    """What the connections of a port may cost.

    Attributes:
        strangers: most connections whose callers are not known yet.
        of_a_caller: most connections of a known caller.
        patience_s: seconds in which a stranger must show who it is.
    """

    strangers: int = 64
    of_a_caller: int = 8
    patience_s: float = 10.0


Talk = Callable[[], Awaitable[None]]
"""Serves a connection until its end."""

Recognise = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[tuple[str, Talk]]]
"""Returns the name of the caller of a new connection, and what serves it. A MusterError refuses the
connection."""


Refusal = Callable[[MusterError], bytes]
"""Returns what a connection gets that is refused because of an error."""


def refusal_line(error: MusterError) -> bytes:
    """The reason of an error as a line of JSON."""
    again = {"again": True} if isinstance(error, Unreachable) else {}
    return json.dumps({"error": sentence(error), **again}).encode() + b"\n"


def keep_alive(listening: socket.socket) -> None:
    """Let the kernel end the TCP connections of a port whose peers have vanished."""
    for level, option, value in _ALIVE:  # accepted sockets inherit it
        listening.setsockopt(level, option, value)


async def listen(
    recognise: Recognise,
    host: str,
    port: int,
    source: CredentialsSource,
    clock: Clock,
    limits: PortLimits | None = None,
    refusal: Refusal = refusal_line,
) -> "LinePort":
    """Listen for connections over TCP; with TLS, for certified callers only. Every handshake uses
    the certificate that `source` has at that moment. The other arguments are those of `LinePort`.

    Raises:
        ConfigError: the address is not a loopback address, and there is no TLS.
        OSError: the port cannot be opened.
    """
    tls = source.current().tls
    require_encrypted(host, tls)
    context = None if tls is None else renewed_context(source, tls)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family)
    keep_alive(listening)
    return LinePort(listening, context, recognise, clock, limits, refusal)


async def read_line(reader: asyncio.StreamReader, most: int) -> bytes:
    """Read a line with its end; nothing at the end of the stream.

    Raises:
        ConnectionResetError: the stream ends within a line.
        RemoteProtocolError: the line has more than `most` bytes. They are not all read.
    """
    line = bytearray()
    while not line.endswith(b"\n"):
        try:
            line += await reader.readuntil(b"\n")
        except asyncio.LimitOverrunError as long:
            line += await reader.readexactly(long.consumed)
        except asyncio.IncompleteReadError as end:
            if line or end.partial:
                raise ConnectionResetError("the stream ends within a line") from None
            return b""
        if len(line) > most:
            raise RemoteProtocolError(f"expected a line of at most {most} bytes")
    return bytes(line)


@dataclass(eq=False)
class _Connection:
    accepted: socket.socket
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter | None = None
    gives_way: asyncio.Event = field(default_factory=asyncio.Event)

    async def open(self, context: ssl.SSLContext | None) -> asyncio.StreamWriter:
        """Do the handshake of TLS, if there is TLS."""
        loop = asyncio.get_running_loop()
        protocol = asyncio.StreamReaderProtocol(self.reader)
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            self.accepted,
            ssl=context,
            ssl_shutdown_timeout=None if context is None else _CLOSING_S,
        )
        self.writer = asyncio.StreamWriter(transport, protocol, self.reader, loop)
        return self.writer

    def refuse(self, why: bytes) -> None:
        """Say why the connection is refused, if it is open."""
        if self.writer is not None:
            self.writer.write(why)

    async def close(self, clock: Clock) -> None:
        """Send what is left, and close."""
        if self.writer is not None:
            self.writer.close()
            with suppress(Unreachable):
                await run_beside(
                    self.writer.wait_closed(), _expire(clock, _CLOSING_S, "to end a connection")
                )

    def abort(self) -> None:
        if self.writer is not None:
            self.writer.transport.abort()


class LinePort:
    """Serves the connections that come to a socket that listens.

    Args:
        listening: the socket; it is closed with the port.
        context: of TLS; None: there is no TLS.
        recognise: finds out who has made a connection.
        refusal: makes of an error what a refused connection gets.
    """

    def __init__(
        self,
        listening: socket.socket,
        context: ssl.SSLContext | None,
        recognise: Recognise,
        clock: Clock,
        limits: PortLimits | None = None,
        refusal: Refusal = refusal_line,
    ) -> None:
        listening.setblocking(False)
        listening.listen(_BACKLOG)
        self._listening, self._context = listening, context
        self._recognise, self._clock = recognise, clock
        self._limits = limits or PortLimits()
        self._refusal = refusal
        self._log = SparseLog(log, clock)
        self._strangers: dict[_Connection, None] = {}  # an ordered set
        self._callers = Counter[str]()
        self._serving = set[asyncio.Task[None]]()
        self._accepting = asyncio.create_task(self._accept())
        self._accepting.add_done_callback(lambda _: listening.close())

    @property
    def number(self) -> int:
        """The number of the port, if it is one of TCP."""
        return int(self._listening.getsockname()[1])

    def close(self) -> None:
        """Accept no more connections, and end all there are."""
        self._accepting.cancel()
        for task in self._serving:
            task.cancel()

    async def wait_closed(self) -> None:
        """Return when all connections have ended, after `close`."""
        await asyncio.wait([self._accepting, *self._serving])

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._listening)
            except OSError as error:  # there are too many open files, for example
                self._log.warning(f"a connection cannot be accepted: {error}")
                await self._clock.sleep_until(self._clock.monotonic() + _ACCEPT_AGAIN_S)
                continue
            serving = loop.create_task(self._serve(accepted))
            self._serving.add(serving)
            serving.add_done_callback(self._serving.discard)
            await asyncio.sleep(0)  # a flood must not keep the others waiting

    async def _serve(self, accepted: socket.socket) -> None:
        connection = _Connection(accepted, asyncio.StreamReader(_BUFFER_BYTES))
        try:
            try:
                name, talk = await self._admitted(connection)
                try:
                    await talk()
                finally:
                    self._callers[name] -= 1
            except MusterError as error:
                self._log.warning(f"a connection is refused: {error}")
                connection.refuse(self._refusal(error))
            await connection.close(self._clock)
        except ConnectionError:
            pass  # it has gone
        except OSError as error:  # in the handshake of TLS
            self._log.warning(f"a connection is dropped: {error}")
        finally:
            connection.abort()

    async def _admitted(self, connection: _Connection) -> tuple[str, Talk]:
        """Find out who calls, and count the connection as the caller's.

        Raises:
            MusterError: the connection is refused.
            OSError: it has ended, or the handshake of TLS failed.
        """
        self._make_room()
        self._strangers[connection] = None
        try:
            name, talk = await run_beside(
                self._known(connection),
                _expire(self._clock, self._limits.patience_s, "to learn who calls"),
                _give_way(connection.gives_way, self._limits.strangers),
            )
        finally:
            self._strangers.pop(connection, None)
        if self._callers[name] >= self._limits.of_a_caller:
            raise Unreachable(
                f"{name} has {self._callers[name]} connections, and may have no more; close one"
            )
        self._callers[name] += 1
        return name, talk

    def _make_room(self) -> None:
        """Drop the strangers that came first until there is room for one more."""
        while len(self._strangers) >= self._limits.strangers:
            first = next(iter(self._strangers))
            del self._strangers[first]
            first.gives_way.set()

    async def _known(self, connection: _Connection) -> tuple[str, Talk]:
        return await self._recognise(connection.reader, await connection.open(self._context))


def sentence(error: Exception) -> str:
    """The message of an error on one line."""
    return "; ".join(part.strip() for part in str(error).splitlines()).replace(":;", ":")


async def _expire(clock: Clock, seconds: float, what: str) -> None:
    await clock.sleep_until(clock.monotonic() + seconds)
    raise Unreachable(f"{seconds:g} s were not enough {what}")


async def _give_way(gives_way: asyncio.Event, most: int) -> None:
    await gives_way.wait()
    raise Unreachable(
        f"there are more than {most} connections whose callers are not known, and this one is the "
        "oldest of them; try again"
    )
