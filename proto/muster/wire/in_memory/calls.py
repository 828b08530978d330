"""The calls of a client, as grpc.aio has them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any, Protocol

import grpc

from muster.wire.in_memory.frames import (
    Frame,
    FrameKind,
    Incoming,
    Metadata,
    Outgoing,
    rpc_error,
)
from muster.wire.in_memory.network import InMemoryConnection


class CallChannel(Protocol):
    """The channel of a call, as the call sees it."""

    async def connected(self, call: "InMemoryCall", wait: bool) -> InMemoryConnection | None:
        """The connection, made if there is none; None if no server listens."""

    def enter(self, call: "InMemoryCall") -> None: ...

    def forget(self, call: "InMemoryCall") -> None: ...


class InMemoryCall:
    """One call; the base class of the four kinds of calls."""

    def __init__(
        self,
        channel: CallChannel,
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
        self._status: tuple[grpc.StatusCode, str, Metadata] | None = None
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
            code, details, trailing = frame.payload
            self.end(code, details, drop=False, trailing=trailing)

    def _greet(self) -> None:
        if not self._greeting.done():
            self._greeting.set_result(())

    def end(
        self,
        code: grpc.StatusCode,
        details: str,
        drop: bool = True,
        trailing: Metadata = (),
    ) -> None:
        """End the call. With `drop`, unread messages are lost."""
        if self._status is not None:
            return
        self._status = code, details, trailing
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
