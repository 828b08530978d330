"""Both transports behind one fixture: a server with the methods that a test gives it, and a way to
break links."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import grpc
import pytest

from muster.wire.channels import client_options, server_options
from muster.wire.in_memory import Host, InMemoryNetwork
from muster.wire.transport import GRPC

Handler = Callable[[Any, Any], Any]

KINDS = {
    "unary_unary": grpc.unary_unary_rpc_method_handler,
    "unary_stream": grpc.unary_stream_rpc_method_handler,
    "stream_unary": grpc.stream_unary_rpc_method_handler,
    "stream_stream": grpc.stream_stream_rpc_method_handler,
}


class Ends(Protocol):
    """A running server and a client's channel to it.

    Attributes:
        channel: the channel to the server.
    """

    channel: Any

    def method(self, kind: str) -> Any:
        """Return a callable for the method of this kind that the test gave to the server."""
        ...

    async def break_links(self) -> None:
        """Break every connection; the server keeps running."""
        ...

    async def stop(self, grace: float | None) -> None:
        """Stop the server.

        Args:
            grace: seconds that running calls may still take; None: none.
        """
        ...


class _Ends:
    def __init__(self, server: Any, channel: Any) -> None:
        self.server = server
        self.channel = channel

    def method(self, kind: str) -> Any:
        return getattr(self.channel, kind)("/test.Test/" + kind)

    async def stop(self, grace: float | None) -> None:
        await self.server.stop(grace)


class OverGrpc(_Ends):
    """gRPC through a proxy that can reset its connections."""

    def __init__(self, server: Any, channel: Any, proxy: Proxy) -> None:
        super().__init__(server, channel)
        self._proxy = proxy

    async def break_links(self) -> None:
        self._proxy.reset()


class Proxy:
    """A TCP proxy that forwards bytes between clients and one server."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.close()
            return
        self._writers += [writer, far_writer]
        for source, target in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(self._pass(source, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(1 << 16):
                target.write(data)
                await target.drain()
        except OSError:
            pass
        finally:
            target.close()

    def reset(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()


class InMemory(_Ends):
    def __init__(self, server: Any, channel: Any, network: InMemoryNetwork) -> None:
        super().__init__(server, channel)
        self._network = network

    async def break_links(self) -> None:
        for connection in list(self._network.connections):
            connection.break_()


def handlers(methods: dict[str, Handler]) -> Any:
    found: dict[str, Any] = {kind: KINDS[kind](handler) for kind, handler in methods.items()}
    return grpc.method_handlers_generic_handler("test.Test", found)


Serve = Callable[..., Awaitable[Ends]]


@pytest.fixture(params=["grpc", "in-memory"])
async def serve(request: pytest.FixtureRequest) -> AsyncIterator[Serve]:
    """Serve methods that are given as kind=handler; requests and replies are bytes."""
    closing: list[Callable[[], Awaitable[Any]]] = []

    async def over_grpc(methods: dict[str, Handler]) -> Ends:
        server = GRPC.server(server_options())
        server.add_generic_rpc_handlers((handlers(methods),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        proxy = Proxy(port)
        listening = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
        address = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        channel = GRPC.channel(address, client_options())

        async def close() -> None:
            await channel.close()
            await server.stop(None)
            listening.close()
            proxy.reset()

        closing.append(close)
        return OverGrpc(server, channel, proxy)

    async def in_memory(methods: dict[str, Handler]) -> Ends:
        network = InMemoryNetwork()
        server = Host(network, "server").server([])
        server.add_generic_rpc_handlers((handlers(methods),))
        port = server.add_insecure_port("server:0")
        await server.start()
        channel = Host(network, "client").channel(f"server:{port}", [])

        async def close() -> None:
            await channel.close()
            await server.stop(None)

        closing.append(close)
        return InMemory(server, channel, network)

    async def make(**methods: Handler) -> Ends:
        return await (over_grpc if request.param == "grpc" else in_memory)(methods)

    yield make
    for close in closing:
        await close()
