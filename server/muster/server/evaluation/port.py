"""The port of an evaluation process that is not a child of the server.

A thread with an event loop accepts connections and finds out who has made them, many at the same
time. Another thread, which may block, evaluates for one server after the other.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final, Self, TypeVar

from muster.common.clock import Clock
from muster.common.credentials import SERVER, CredentialsSource
from muster.common.errors import ConfigError
from muster.common.exchange import Body
from muster.wire.connections.encryption import require_peer
from muster.wire.connections.ports import LinePort, PortLimits, Talk, listen, read_line

_LONGEST_LINE: Final = 64 * 2**20
"""The most bytes of a line of the server. The first one has the names of all devices."""

T = TypeVar("T")


class ServerConnection:
    """A connection of the server, as files for a thread that may block."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._loop = asyncio.get_running_loop()
        self._done = asyncio.Event()

    def readline(self) -> bytes:
        """Read a line; nothing at the end.

        Raises:
            ConnectionError: the connection broke.
        """
        return self._wait(read_line(self._reader, _LONGEST_LINE))

    def read(self, nbytes: int) -> bytes:
        """Read so many bytes; fewer if the connection ends first.

        Raises:
            ConnectionError: the connection broke.
        """
        try:
            return self._wait(self._reader.readexactly(nbytes))
        except asyncio.IncompleteReadError as end:
            return end.partial

    def write(self, data: Body) -> None:
        """Send bytes.

        Raises:
            ConnectionError: the connection broke.
        """
        self._wait(self._send(data))

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._done.set)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def closed(self) -> None:
        """Return when the connection has been closed here."""
        await self._done.wait()

    async def _send(self, data: Body) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class EvaluationPort:
    """Takes the connections of the server of a run, and of nobody else.

    Args:
        source: the credentials of the evaluation.

    Raises:
        ConfigError: there is no TLS, by which alone the server is recognised.
        OSError: the port cannot be opened.
    """

    def __init__(
        self,
        host: str,
        port: int,
        source: CredentialsSource,
        clock: Clock,
        limits: PortLimits | None = None,
    ) -> None:
        if source.current().tls is None:
            raise ConfigError(
                "an evaluation that listens recognises the server by its certificate; expected "
                "credentials with TLS, found some without"
            )
        self._source = source
        self._servers = queue.SimpleQueue[ServerConnection | None]()
        self._serving = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._port: LinePort = self._run(listen(self._recognise, host, port, source, clock, limits))

    @property
    def number(self) -> int:
        """The number of the port."""
        return self._port.number

    def serve(self, talk: Callable[[ServerConnection], None]) -> None:
        """Talk with one connection of the server after the other, until another thread closes the
        port.

        Args:
            talk: returns, or raises ConnectionError, when the connection has ended.
        """
        with self._serving:
            while (server := self._servers.get()) is not None:
                with server, suppress(ConnectionError):
                    talk(server)

    def close(self) -> None:
        """End all connections, wait until `serve` has returned, and close the port."""
        self._run(self._close())
        self._servers.put(None)
        with self._serving:
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        self._port.close()
        await self._port.wait_closed()

    async def _recognise(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[str, Talk]:
        """Find out by its certificate whether the server has made a connection."""
        require_peer(writer.get_extra_info("ssl_object"), self._source.current().run, SERVER)
        return SERVER, partial(self._hand_over, reader, writer)

    async def _hand_over(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = ServerConnection(reader, writer)
        self._servers.put(connection)
        await connection.closed()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
