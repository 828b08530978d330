"""The client end of in-memory connections."""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from itertools import count
from typing import Any

import grpc

from muster.wire.in_memory.frames import Frame, FrameKind, Incoming, Outgoing, rpc_error
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

    def _method(self, kind: "type[InMemoryCall]", method: str, encode: Any, decode: Any) -> Any:
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

    async def connected(self, call: "InMemoryCall", wait: bool) -> InMemoryConnection | None:
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

    def enter(self, call: "InMemoryCall") -> None:
        self._calls[call.stream] = call

    def forget(self, call: "InMemoryCall") -> None:
        self._calls.pop(call.stream, None)

    def call(self, stream: int) -> "InMemoryCall | None":
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


class InMemoryCall:
    """One call; the base class of the four kinds of calls."""

    def __init__(
        self,
        channel: Channel,
        stream: int,
        encode: Callable[[Any], bytes] | None,
        decode: Callable[[bytes], Any] | None,
    ) -> None:
        self.stream = stream
        self.connection: InMemoryConnection | None = None
        self._channel = channel
        self._encode = encode
        self._decode = decode
        self._incoming = Incoming(self._send)
        self._outgoing = Outgoing(self._send)
        self._status: tuple[grpc.StatusCode, str] | None = None
        self._cancelled = False
        self._half_closed = False
        loop = asyncio.get_running_loop()
        self._greeting: asyncio.Future[tuple[()]] = loop.create_future()
        self._ended: asyncio.Future[None] = loop.create_future()
        self._tasks: list[asyncio.Task[Any]] = []
        self._deadline: asyncio.TimerHandle | None = None
        self._begun = asyncio.Event()

    def begin(self, headers: tuple[str, Any, float | None], request: Any, wait: bool) -> None:
        """Send the headers as soon as there is a connection, and then the requests."""
        self._channel.enter(self)
        loop = asyncio.get_running_loop()
        if (timeout := headers[2]) is not None:
            details = "Deadline Exceeded"
            self._deadline = loop.call_later(
                timeout, self._give_up, grpc.StatusCode.DEADLINE_EXCEEDED, details
            )
        self._tasks.append(loop.create_task(self._run(headers, request, wait)))

    async def _run(self, headers: tuple[str, Any, float | None], request: Any, wait: bool) -> None:
        connection = await self._channel.connected(self, wait)
        if self._ended.done():
            return
        if connection is None:
            self.end(grpc.StatusCode.UNAVAILABLE, "failed to connect: connection refused")
            return
        self.connection = connection
        connection.methods[self.stream] = headers[0]
        connection.send(1, Frame(self.stream, FrameKind.HEADERS, headers))
        self._begun.set()
        await self._requests(request)

    async def _requests(self, request: Any) -> None:
        """Send the requests that were passed when the call began."""

    def _send(self, kind: FrameKind, payload: Any) -> None:
        if self.connection is not None:
            self.connection.send(1, Frame(self.stream, kind, payload))

    # --- events from the far end -----------------------------------------------------------------

    def receive(self, frame: Frame) -> None:
        if frame.kind is FrameKind.METADATA:
            self._greet()
        elif frame.kind is FrameKind.MESSAGE:
            self._incoming.arrive(frame.payload)
        elif frame.kind is FrameKind.WINDOW:
            self._outgoing.was_read(frame.payload)
        elif frame.kind is FrameKind.STATUS:
            code, details = frame.payload
            self.end(code, details, drop=False)

    def _greet(self) -> None:
        if not self._greeting.done():
            self._greeting.set_result(())

    def end(self, code: grpc.StatusCode, details: str, drop: bool = True) -> None:
        """End the call. With `drop`, unread messages are lost."""
        if self._status is not None:
            return
        self._status = code, details
        self._greet()
        self._incoming.end(drop)
        self._outgoing.close()
        self._begun.set()
        if self._deadline is not None:
            self._deadline.cancel()
        self._ended.set_result(None)
        self._channel.forget(self)

    def _give_up(self, code: grpc.StatusCode, details: str) -> None:
        if self._status is None:
            self._send(FrameKind.RESET, None)
            self.end(code, details)

    # --- the interface of grpc.aio calls ---------------------------------------------------------

    def cancel(self) -> bool:
        if self._status is not None:
            return False
        self._cancelled = True
        self._give_up(grpc.StatusCode.CANCELLED, "Locally cancelled by application!")
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        return True

    def cancelled(self) -> bool:
        return self._cancelled

    def done(self) -> bool:
        return self._status is not None and self._incoming.drained

    async def initial_metadata(self) -> tuple[()]:
        """Return when the server has sent its initial metadata, or the call is over."""
        await asyncio.shield(self._greeting)
        return ()

    async def code(self) -> grpc.StatusCode:
        await asyncio.shield(self._ended)
        assert self._status is not None
        return self._status[0]

    def _raise_for_status(self) -> None:
        assert self._status is not None
        if self._cancelled:
            raise asyncio.CancelledError
        if self._status[0] is not grpc.StatusCode.OK:
            raise rpc_error(*self._status)

    async def _next(self) -> Any:
        try:
            data = await self._incoming.read()
            if data is None:
                await asyncio.shield(self._ended)
        except asyncio.CancelledError:  # as in grpc.aio, a cancelled read cancels the call
            self.cancel()
            raise
        if data is None:
            self._raise_for_status()
            return grpc.aio.EOF
        return data if self._decode is None else self._decode(data)

    async def _put(self, request: Any) -> None:
        if self._status is not None:
            raise asyncio.InvalidStateError("RPC already finished.")
        if self._half_closed:
            raise asyncio.InvalidStateError("RPC is half closed after calling `done_writing`.")
        try:
            await self._begun.wait()
            if self._status is not None:
                self._raise_for_status()
                return
            sent = await self._outgoing.write(
                request if self._encode is None else self._encode(request)
            )
        except asyncio.CancelledError:
            self.cancel()
            raise
        if not sent:
            await asyncio.shield(self._ended)
            self._raise_for_status()

    def _half_close(self) -> None:
        if not self._half_closed and self._status is None:
            self._half_closed = True
            self._send(FrameKind.HALF_CLOSE, None)

    async def _answer(self) -> Any:
        answer = await self._next()
        if answer is not grpc.aio.EOF:
            try:
                await asyncio.shield(self._ended)
            except asyncio.CancelledError:
                self.cancel()
                raise
            self._raise_for_status()
        return answer


class _Request(InMemoryCall):
    """A call with one request."""

    async def _requests(self, request: Any) -> None:
        data = request if self._encode is None else self._encode(request)
        self._send(FrameKind.MESSAGE, data)
        self._half_close()


class UnaryCall(_Request):
    """One request, one answer."""

    def __await__(self) -> Generator[Any, None, Any]:
        return self._answer().__await__()


class UnaryStreamCall(_Request):
    """One request, a stream of answers."""

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (message := await self._next()) is not grpc.aio.EOF:
            yield message

    async def read(self) -> Any:
        return await self._next()


class StreamUnaryCall(InMemoryCall):
    """A stream of requests, one answer."""

    async def _requests(self, request: Any) -> None:
        try:
            async for each in request:
                await self._put(each)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # the caller learns it from the status
        except Exception:  # as in grpc.aio, requests that fail cancel the call
            self.cancel()
            return
        self._half_close()

    def __await__(self) -> Generator[Any, None, Any]:
        return self._answer().__await__()


class StreamCall(InMemoryCall):
    """Streams both ways."""

    async def read(self) -> Any:
        return await self._next()

    async def write(self, request: Any) -> None:
        await self._put(request)

    async def done_writing(self) -> None:
        await self._begun.wait()
        self._half_close()
