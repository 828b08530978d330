"""What carries the calls between server and devices: gRPC over TCP, or memory in a simulation.

The interface is the part of `grpc.aio` that muster uses, so the generated stubs and services work
over both. `tests/conformance` holds both implementations to one suite: the in-memory transport
(`muster.wire.in_memory`) may not be more forgiving than gRPC.
"""

from typing import Any, Protocol

import grpc

from muster.wire.channels import Options


class Transport(Protocol):
    """Makes the two ends of connections."""

    def channel(self, address: str, options: Options) -> Any:
        """A channel to host:port, as `grpc.aio.insecure_channel` makes it. It connects when it is
        first used, and again after its connection broke."""
        ...

    def server(self, options: Options) -> Any:
        """A server that listens nowhere yet, as `grpc.aio.server` makes it."""
        ...


class GrpcTransport:
    """gRPC over TCP."""

    def channel(self, address: str, options: Options) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(address, options=options)

    def server(self, options: Options) -> grpc.aio.Server:
        return grpc.aio.server(options=options)


GRPC = GrpcTransport()
