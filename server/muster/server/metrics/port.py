"""The port at which Prometheus reads the metrics.

Its connections are limited like those of the other ports (`muster.wire.connections.ports`). A
caller shows the token of the credentials `metrics` in the header `Authorization` and, with TLS,
their certificate.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus

from muster.common.clock import Clock
from muster.common.credentials import METRICS, Callers, CredentialsSource
from muster.common.errors import Forbidden, MusterError, RemoteProtocolError, Unauthenticated
from muster.wire.connections.encryption import require_peer
from muster.wire.connections.ports import LinePort, PortLimits, Talk, listen, read_line

PATH = "/metrics"
_BEARER = "bearer "


@dataclass(frozen=True, slots=True)
class Scrape:
    """A request for the metrics.

    Attributes:
        accept: the formats that the caller understands, as in the header of HTTP; empty: any.
        shown: the caller's token and name (`Credentials.shown`); None: it shows none.
    """

    accept: str
    shown: bytes | None


def parse_request(head: bytes) -> Scrape:
    """Read the lines of a request before its body.

    Raises:
        RemoteProtocolError: it is no request of HTTP/1, or one for anything else than the metrics.
    """
    first, *lines = head.decode("latin-1").splitlines() or [""]
    method, _, rest = first.partition(" ")
    path, _, version = rest.partition(" ")
    if not version.startswith("HTTP/1."):
        raise RemoteProtocolError(f"expected a request of HTTP/1.1, found {first[:100]!r}")
    if method != "GET" or path.partition("?")[0] != PATH:
        raise RemoteProtocolError(f"expected GET {PATH}, found {method[:20]} {path[:100]}")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return Scrape(headers.get("accept", ""), _token(headers.get("authorization", "")))


def _token(authorization: str) -> bytes | None:
    """The bytes of a bearer token in hexadecimal; None if there is none."""
    if not authorization.lower().startswith(_BEARER):
        return None
    try:
        return bytes.fromhex(authorization[len(_BEARER) :])
    except ValueError:
        return None


def reply(status: HTTPStatus, content_type: str, body: bytes) -> bytes:
    """A reply, after which the connection is closed."""
    head = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    if status is HTTPStatus.UNAUTHORIZED:
        head.append("WWW-Authenticate: Bearer")
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body


def refusal(error: MusterError) -> bytes:
    """The reply to a request that is refused."""
    status = HTTPStatus.SERVICE_UNAVAILABLE
    if isinstance(error, Unauthenticated):
        status = HTTPStatus.UNAUTHORIZED
    elif isinstance(error, Forbidden):
        status = HTTPStatus.FORBIDDEN
    elif isinstance(error, RemoteProtocolError):
        status = HTTPStatus.BAD_REQUEST
    return reply(status, "text/plain; charset=utf-8", f"{error}\n".encode())


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
