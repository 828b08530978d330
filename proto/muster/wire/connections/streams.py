"""Opens connections that carry lines, and the ports for them."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Final

from muster.common.credentials import Credentials, CredentialsSource
from muster.common.errors import Unauthenticated
from muster.wire.connections.encryption import (
    renewed_context,
    require_encrypted,
    require_peer,
    tls_context,
)

LINE_BYTES: Final = 1 << 16

HANDSHAKE_S: Final = 10.0
"""Seconds that a program that listens waits for the end of a handshake of TLS."""

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def open_stream(
    host: str, port: int, credentials: Credentials | None, peer: str, limit: int = LINE_BYTES
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a program that listens with `listen`.

    Args:
        peer: the name that its certificate must have.
        limit: most bytes of a line.

    Raises:
        OSError: nobody listens there, or the handshake of TLS failed.
        Unauthenticated: the certificate is another program's.
    """
    if credentials is None or credentials.tls is None:
        return await asyncio.open_connection(host, port, limit=limit)
    context = tls_context(credentials.tls, server_side=False)
    reader, writer = await asyncio.open_connection(
        host, port, limit=limit, ssl=context, server_hostname=""
    )
    try:
        require_peer(writer.get_extra_info("ssl_object"), credentials.run, peer)
    except Unauthenticated:
        writer.transport.abort()
        raise
    return reader, writer


async def listen(
    talk: Talk, host: str, port: int, source: CredentialsSource, limit: int = LINE_BYTES
) -> asyncio.Server:
    """Listen for connections, each of which `talk` serves; with TLS, for certified peers only.
    Every handshake uses the certificate that `source` has at that moment.

    Raises:
        ConfigError: the address is not a loopback address, and there is no TLS.
        OSError: the port cannot be opened.
    """
    tls = source.current().tls
    require_encrypted(host, tls)
    context = None if tls is None else renewed_context(source, tls)
    patience_s = None if context is None else HANDSHAKE_S
    return await asyncio.start_server(
        talk, host, port, limit=limit, ssl=context, ssl_handshake_timeout=patience_s
    )


def connect_blocking(
    host: str, port: int, credentials: Credentials, peer: str, timeout_s: float
) -> socket.socket:
    """Like `open_stream`, for code without an event loop."""
    connection = socket.create_connection((host, port), timeout_s)
    return wrap_blocking(connection, credentials, peer, server_side=False)


def wrap_blocking(
    connection: socket.socket, credentials: Credentials, peer: str, server_side: bool
) -> socket.socket:
    """Do the handshake of TLS on a new connection, if there is TLS; return what to use instead.

    Raises:
        OSError: the handshake failed.
        Unauthenticated: the certificate is not that of `peer`.
    """
    if credentials.tls is None:
        return connection
    try:
        wrapped = tls_context(credentials.tls, server_side).wrap_socket(
            connection, server_side=server_side
        )
        require_peer(wrapped, credentials.run, peer)
    except (OSError, Unauthenticated):
        connection.close()
        raise
    return wrapped
