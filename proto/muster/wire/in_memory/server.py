"""The server end of in-memory connections."""

import asyncio
import contextvars
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple, NoReturn

import grpc

from muster.wire.in_memory.frames import Frame, FrameKind, Incoming, Metadata, Outgoing
from muster.wire.in_memory.network import InMemoryConnection, InMemoryNetwork


class _Details(NamedTuple):
    """A call as a generic handler sees it."""

    method: str
    invocation_metadata: Sequence[tuple[str, str | bytes]]


class InMemoryServer:
    """A server with the part of `grpc.aio.Server` that muster uses."""

    def __init__(self, network: InMemoryNetwork, host: str) -> None:
        self.host = host
        self._network = network
        self._handlers: list[Any] = []
        self._addresses: list[str] = []
        # In the order in which they began, in which they are ended: the order of a set changes.
        self._ends: dict[_ServerEnd, None] = {}
        self.calls: dict[asyncio.Task[None], None] = {}
        self.context = contextvars.copy_context()

    def add_generic_rpc_handlers(self, handlers: Sequence[Any]) -> None:
        self._handlers += handlers

    def add_registered_method_handlers(self, service: str, handlers: object) -> None:
        """Do nothing: the generated code registers a service twice, and the generic handlers are
        enough."""

    def add_insecure_port(self, address: str) -> int:
        """Listen at host:port once started, and return the port. Port 0 stands for a free one."""
        host, _, port = address.rpartition(":")
        number = int(port) or next(self._network.free_ports)
        self._addresses.append(f"{host}:{number}")
        return number

    async def start(self) -> None:
        # Handlers run in the context of the process that starts the server.
        self.context = contextvars.copy_context()
        for address in self._addresses:
            if not self._network.listen(address, self):
                raise RuntimeError(f"{address} is taken")

    async def stop(self, grace: float | None) -> None:
        """Stop listening, give calls `grace` seconds to end, then cancel those that are left."""
        self._network.unlisten(self)
        if self.calls and grace:
            await asyncio.wait(self.calls, timeout=grace)
        for call in list(self.calls):
            call.cancel()
        if self.calls:
            await asyncio.wait(self.calls)
        for end in list(self._ends):
            end.connection.close()

    def accept(self, connection: InMemoryConnection) -> "_ServerEnd":
        end = _ServerEnd(self, connection)
        self._ends[end] = None
        return end

    def forget(self, end: "_ServerEnd") -> None:
        self._ends.pop(end, None)

    def handler(self, details: _Details) -> Any:
        """The handler of a method; None if the server does not have the method."""
        for generic in self._handlers:
            if (handler := generic.service(details)) is not None:
                return handler
        return None


class _ServerEnd:
    """The server's end of one connection."""

    def __init__(self, server: InMemoryServer, connection: InMemoryConnection) -> None:
        self.server = server
        self.connection = connection
        self._contexts: dict[int, Context] = {}

    def receive(self, frame: Frame) -> None:
        if frame.kind is FrameKind.HEADERS:
            self._begin(frame)
        elif (context := self._contexts.get(frame.stream)) is not None:
            context.receive(frame)

    def _begin(self, frame: Frame) -> None:
        method, metadata, left_s = frame.payload
        process = self.server.context.copy()
        context = Context(self.connection, frame.stream, metadata, process)
        handler = self.server.handler(_Details(method, metadata))
        if handler is None:
            context.end(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
            return
        self._contexts[frame.stream] = context
        loop = asyncio.get_running_loop()
        task = loop.create_task(context.run(handler), context=process)
        context.task = task
        self.server.calls[task] = None
        task.add_done_callback(self.server.calls.pop)
        task.add_done_callback(lambda _: self._contexts.pop(frame.stream, None))
        if left_s is not None:
            loop.call_later(left_s, context.lose)

    def lose(self) -> None:
        for context in list(self._contexts.values()):
            context.lose()
        self.server.forget(self)


class Context:
    """A context with the part of `grpc.aio.ServicerContext` that muster uses."""

    def __init__(
        self,
        connection: InMemoryConnection,
        stream: int,
        metadata: Sequence[tuple[str, str | bytes]],
        process: contextvars.Context,
    ) -> None:
        self.task: asyncio.Task[None] | None = None
        self._process = process
        self._connection = connection
        self._stream = stream
        self._metadata = metadata
        self._incoming = Incoming(self._send)
        self._outgoing = Outgoing(self._send)
        self._handler: Any = None
        self._aborted: tuple[grpc.StatusCode, str, Metadata] | None = None
        self._greeted = False

    def _send(self, kind: FrameKind, payload: Any) -> None:
        self._connection.send(0, Frame(self._stream, kind, payload))

    # --- events from the far end -----------------------------------------------------------------

    def receive(self, frame: Frame) -> None:
        if frame.kind is FrameKind.MESSAGE:
            self._incoming.arrive(frame.payload)
        elif frame.kind is FrameKind.HALF_CLOSE:
            self._incoming.end()
        elif frame.kind is FrameKind.WINDOW:
            self._outgoing.was_read(frame.payload)
        elif frame.kind is FrameKind.RESET:
            self.lose()

    def lose(self) -> None:
        """Lose the far end: a read returns EOF, and the handler is cancelled a moment later."""
        self._incoming.end(drop=True)
        self._outgoing.close()
        if self.task is not None:
            asyncio.get_running_loop().call_soon(self.task.cancel, context=self._process)

    # --- the interface for handlers --------------------------------------------------------------

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]]:
        return self._metadata

    async def read(self) -> Any:
        data = await self._incoming.read()
        if data is None:
            return grpc.aio.EOF
        decode = self._handler.request_deserializer
        return data if decode is None else decode(data)

    async def write(self, message: Any) -> None:
        encode = self._handler.response_serializer
        self._greet()
        if not await self._outgoing.write(message if encode is None else encode(message)):
            raise grpc.aio.InternalError("the call has ended")

    async def send_initial_metadata(self, metadata: object) -> None:
        self._greet()

    def _greet(self) -> None:
        if not self._greeted:
            self._greeted = True
            self._send(FrameKind.METADATA, None)

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata = ()
    ) -> NoReturn:
        self._aborted = code, details, trailing_metadata
        raise grpc.aio.AbortError

    def code(self) -> grpc.StatusCode | None:
        """The status with which the call was aborted; None if it was not."""
        return None if self._aborted is None else self._aborted[0]

    # --- the call --------------------------------------------------------------------------------

    async def run(self, handler: Any) -> None:
        """Run the handler of the call, and send its status."""
        self._handler = handler
        try:
            await self._handle(handler)
        except grpc.aio.AbortError:
            assert self._aborted is not None
            self.end(*self._aborted)
        except asyncio.CancelledError:
            self.end(grpc.StatusCode.CANCELLED, "the handler was cancelled")
        except Exception as error:
            self.end(grpc.StatusCode.UNKNOWN, f"Unexpected {type(error)}: {error}")
        else:
            self.end(grpc.StatusCode.OK, "")

    async def _handle(self, handler: Any) -> None:
        request: Any = self._requests()
        if not handler.request_streaming:
            request = await self.read()
        streams = handler.request_streaming, handler.response_streaming
        method = {
            (False, False): handler.unary_unary,
            (False, True): handler.unary_stream,
            (True, False): handler.stream_unary,
            (True, True): handler.stream_stream,
        }[streams]
        answer = method(request, self)
        if hasattr(answer, "__aiter__"):
            async for message in answer:
                await self.write(message)
        elif handler.response_streaming:
            await answer
        else:
            await self.write(await answer)

    async def _requests(self) -> AsyncIterator[Any]:
        while (message := await self.read()) is not grpc.aio.EOF:
            yield message

    def end(self, code: grpc.StatusCode, details: str, trailing: Metadata = ()) -> None:
        """Send the status of the call, with its trailing metadata."""
        self._send(FrameKind.STATUS, (code, details, trailing))
        self._outgoing.close()
        self._incoming.end(drop=True)
