"""Transports of the calls between server and devices: gRPC over TCP, or memory in a simulation.

The interface is the part of `grpc.aio` that muster uses, so the generated stubs and services work
over both. `tests/conformance` runs the same tests on both implementations, because the in-memory
transport (`muster.wire.in_memory`) must not be more forgiving than gRPC.
"""

from typing import Any, Protocol

import grpc

from muster.common.credentials import CredentialsSource
from muster.wire.channels import Options
from muster.wire.connections.calls import add_port, open_channel


class Transport(Protocol):
    """Makes the two ends of connections."""

    def channel(self, address: str, options: Options) -> Any:
        """A channel to host:port, like that of `grpc.aio.insecure_channel`.

        It connects when it is first used, and again after its connection broke.
        """
        ...

    def server(self, options: Options) -> Any:
        """A server that does not listen yet, like that of `grpc.aio.server`."""
        ...

    def listen(self, server: Any, address: str) -> int:
        """Let a server of this transport listen at host:port, and return the port. Port 0 stands
        for a free one.

        Raises:
            ConfigError: the address may not be listened at without TLS.
            RuntimeError: the port cannot be opened.
        """
        ...


class GrpcTransport:
    """The transport over TCP, by gRPC.

    Args:
        source: the credentials of this program; None: there is no TLS.
    """

    def __init__(self, source: CredentialsSource | None = None) -> None:
        self._source = source

    def channel(self, address: str, options: Options) -> grpc.aio.Channel:
        credentials = None if self._source is None else self._source.current()
        return open_channel(address, options, credentials)

    def server(self, options: Options) -> grpc.aio.Server:
        return grpc.aio.server(options=options)

    def listen(self, server: Any, address: str) -> int:
        return add_port(server, address, self._source)


GRPC = GrpcTransport()
"""The transport without TLS."""
