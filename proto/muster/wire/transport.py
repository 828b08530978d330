"""Transports of the calls between server and devices: gRPC over TCP, or memory in a simulation.

The interface is the part of `grpc.aio` that muster uses, so the generated stubs and services work
over both. `tests/conformance` runs the same tests on both implementations, because the in-memory
transport (`muster.wire.in_memory`) must not be more forgiving than gRPC.
"""

from typing import Any, Protocol

import grpc

from muster.wire.channels import Options


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


class GrpcTransport:
    """The transport over TCP, by gRPC."""

    def channel(self, address: str, options: Options) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(address, options=options)

    def server(self, options: Options) -> grpc.aio.Server:
        return grpc.aio.server(options=options)


GRPC = GrpcTransport()
