"""Opens connections that carry lines, to the ports of `ports`."""

import asyncio
import socket
from typing import Final

from muster.common.credentials import Credentials
from muster.common.errors import Unauthenticated
from muster.wire.connections.encryption import require_peer, tls_context

LINE_BYTES: Final = 1 << 16


async def open_stream(
    host: str, port: int, credentials: Credentials | None, peer: str, limit: int = LINE_BYTES
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a program that listens with `ports.listen`.

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


def connect_blocking(
    host: str, port: int, credentials: Credentials, peer: str, timeout_s: float
) -> socket.socket:
    """Like `open_stream`, for code without an event loop."""
    tls = credentials.tls
    context = None if tls is None else tls_context(tls, server_side=False)
    connection = socket.create_connection((host, port), timeout_s)
    if context is None:
        return connection
    try:
        connection.getpeername()  # of a peer that has gone, Python would leave the wrapped one open
        connection = context.wrap_socket(connection)  # which closes the plain one
        require_peer(connection, credentials.run, peer)
    except BaseException:
        connection.close()
        raise
    return connection
