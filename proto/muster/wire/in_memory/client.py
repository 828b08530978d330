"""The client end of in-memory connections."""

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import Any

import grpc

from muster.wire.in_memory.calls import (
    InMemoryCall,
    StreamCall,
    StreamUnaryCall,
    UnaryCall,
    UnaryStreamCall,
)
from muster.wire.in_memory.frames import Frame
from muster.wire.in_memory.network import InMemoryConnection, InMemoryNetwork

_AGAIN_S = 0.1
"""Seconds between tries to connect, for calls that wait until the channel is ready."""


class Channel:
    """A channel with the part of `grpc.aio.Channel` that muster uses."""

    def __init__(self, network: InMemoryNetwork, host: str, address: str) -> None:
        self._network = network
        self._host = host
        self._address = address
        self._connection: InMemoryConnection | None = None
        self._streams = count(1)
        self._calls: dict[int, InMemoryCall] = {}
        self._closed = False

    def _method(self, kind: type[InMemoryCall], method: str, encode: Any, decode: Any) -> Any:
        def begin(
            request: Any = None,
            *,
            timeout: float | None = None,
            metadata: Sequence[tuple[str, str | bytes]] = (),
            wait_for_ready: bool | None = None,
        ) -> InMemoryCall:
            if self._closed:
                raise grpc.aio.UsageError("Channel is closed.")
            call = kind(self, next(self._streams), encode, decode)
            call.begin((method, tuple(metadata or ()), timeout), request, bool(wait_for_ready))
            return call

        return begin

    def unary_unary(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        **_: Any,
    ) -> Any:
        return self._method(UnaryCall, method, request_serializer, response_deserializer)

    def unary_stream(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        **_: Any,
    ) -> Any:
        return self._method(UnaryStreamCall, method, request_serializer, response_deserializer)

    def stream_unary(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        **_: Any,
    ) -> Any:
        return self._method(StreamUnaryCall, method, request_serializer, response_deserializer)

    def stream_stream(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        **_: Any,
    ) -> Any:
        return self._method(StreamCall, method, request_serializer, response_deserializer)

    async def close(self, grace: float | None = None) -> None:
        """Cancel all calls and end the connection."""
        self._closed = True
        for call in list(self._calls.values()):
            call.cancel()
        if self._connection is not None:
            self._connection.break_()
            self._connection = None

    # --- for the calls ---------------------------------------------------------------------------

    async def connected(self, call: InMemoryCall, wait: bool) -> InMemoryConnection | None:
        """The connection, made if there is none; None if no server listens."""
        network, loop = self._network, asyncio.get_running_loop()
        while True:
            if self._connection is None:
                arrival = loop.create_future()
                target = self._address.rpartition(":")[0]
                delay_s = network.weather.delay_s(self._host, target)
                loop.call_later(delay_s, _arrive, arrival)
                await arrival
            if self._connection is None:
                end = _ClientEnd(self)
                self._connection = network.connect(self._host, self._address, end)
                end.connection = self._connection
            if self._connection is not None or not wait:
                return self._connection
            await asyncio.sleep(_AGAIN_S)

    def enter(self, call: InMemoryCall) -> None:
        self._calls[call.stream] = call

    def forget(self, call: InMemoryCall) -> None:
        self._calls.pop(call.stream, None)

    def call(self, stream: int) -> InMemoryCall | None:
        return self._calls.get(stream)

    def lose(self, connection: InMemoryConnection) -> None:
        """End the calls on a connection that broke, also those that began after it broke."""
        if self._connection is connection:
            self._connection = None
        for call in [call for call in self._calls.values() if call.connection is connection]:
            call.end(grpc.StatusCode.UNAVAILABLE, "the connection broke")


def _arrive(arrival: "asyncio.Future[None]") -> None:
    if not arrival.done():
        arrival.set_result(None)


class _ClientEnd:
    """The client's end of one connection."""

    def __init__(self, channel: Channel) -> None:
        self.connection: InMemoryConnection | None = None
        self._channel = channel

    def receive(self, frame: Frame) -> None:
        if (call := self._channel.call(frame.stream)) is not None:
            call.receive(frame)

    def lose(self) -> None:
        assert self.connection is not None
        self._channel.lose(self.connection)
