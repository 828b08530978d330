"""The port at which Prometheus reads the metrics.

Its connections are limited like those of the other ports (`muster.wire.connections.ports`). A
caller shows the token of the credentials `metrics` in the header `Authorization` and, with TLS,
their certificate.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from http import HTTPStatus

from muster.common.clock import Clock
from muster.common.credentials import METRICS, Callers, CredentialsSource
from muster.common.errors import Forbidden, RemoteProtocolError
from muster.server.metrics.scrape import Scrape, parse_request, refusal, reply
from muster.wire.connections.encryption import require_peer
from muster.wire.connections.ports import LinePort, PortLimits, Talk, listen, read_line

_HEAD_BYTES = 8192
"""The most bytes of a request before its body. Prometheus sends some hundred."""

Render = Callable[[str], tuple[str, bytes]]
"""Returns the metrics as text, after its content type, given the formats that the caller accepts.
It may take a while, and is called in a thread."""


class MetricsPort:
    """Serves the metrics of a server.

    Args:
        source: the server's credentials, with the callers that it knows.
    """

    def __init__(self, render: Render, source: CredentialsSource) -> None:
        self._render = render
        self._source, self._callers = source, Callers(source)

    async def listen(
        self, host: str, port: int, clock: Clock, limits: PortLimits | None = None
    ) -> LinePort:
        """Open the port.

        Raises:
            ConfigError: it may not be opened without TLS.
            OSError: it cannot be opened.
        """
        return await listen(self._begin, host, port, self._source, clock, limits, refusal)

    async def _begin(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[str, Talk]:
        """Read the request of a connection, and find out who has made it."""
        scrape = parse_request(await _head(reader))
        caller = self._callers.recognise(scrape.shown)
        if caller.name != METRICS:
            raise Forbidden(f"{caller.name} may not read the metrics")
        credentials = self._source.current()
        if credentials.tls is not None:
            require_peer(writer.get_extra_info("ssl_object"), credentials.run, METRICS)
        return caller.name, partial(self._answer, scrape, writer)

    async def _answer(self, scrape: Scrape, writer: asyncio.StreamWriter) -> None:
        content_type, body = await asyncio.to_thread(self._render, scrape.accept)
        writer.write(reply(HTTPStatus.OK, content_type, body))
        await writer.drain()


async def _head(reader: asyncio.StreamReader) -> bytes:
    """Read the lines of a request up to the empty one.

    Raises:
        ConnectionResetError: the connection ends within a line.
        RemoteProtocolError: they are too long.
    """
    head = b""
    while line := (await read_line(reader, _HEAD_BYTES)).rstrip(b"\r\n"):
        head += line + b"\n"
        if len(head) > _HEAD_BYTES:
            raise RemoteProtocolError(f"expected at most {_HEAD_BYTES} bytes of headers")
    return head
