"""Adds services to a gRPC server, and checks their callers.

gRPC reads the request of a unary call, up to the largest message, before it calls the method. The
caller is therefore checked earlier, so that a call without valid credentials costs no memory: by
its metadata when the method is looked up, and by its certificate and the limits of its calls in a
method that reads nothing before that.
"""

from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from muster.common.errors import Forbidden, Overloaded, Unauthenticated
from muster.server.rpc.authentication import Authentication, Context
from muster.server.rpc.limits import CallLimits
from muster.server.rpc.operator import OperatorService
from muster.server.rpc.service import STATUS, FleetService
from muster.v1 import operator_pb2_grpc
from muster.wire import RETRY_AFTER
from muster.wire.handlers import add_fleet_to_server


def add_services(
    server: Any,
    fleet: FleetService,
    operator: OperatorService,
    authentication: Authentication,
    limits: CallLimits,
) -> None:
    """Add both services to `server`, for callers that present valid credentials.

    Args:
        server: a server made by `muster.wire.transport.Transport.server`.
    """
    guard: Any = AuthenticatedServer(server, authentication, limits)
    add_fleet_to_server(fleet, guard)
    operator_pb2_grpc.add_OperatorServicer_to_server(operator, guard)


class AuthenticatedServer:
    """Stands in for a gRPC server to which handlers are added; lets it check every caller."""

    def __init__(self, server: Any, authentication: Authentication, limits: CallLimits) -> None:
        self._server = server
        self._authentication = authentication
        self._limits = limits

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        guarded = tuple(
            _Guarded(handler, self._authentication, self._limits) for handler in handlers
        )
        self._server.add_generic_rpc_handlers(guarded)

    def add_registered_method_handlers(self, service: str, handlers: object) -> None:
        """Do nothing: the generated code registers a service twice, and the generic handlers are
        enough."""


class _Guarded(grpc.GenericRpcHandler):
    """Handlers that refuse a caller before any of the request is read."""

    def __init__(
        self,
        handlers: grpc.GenericRpcHandler,
        authentication: Authentication,
        limits: CallLimits,
    ) -> None:
        self._handlers = handlers
        self._authentication = authentication
        self._limits = limits

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        handler = self._handlers.service(handler_call_details)
        if handler is None:  # the method of another service, or unknown
            return None
        method, shown = handler_call_details.method, handler_call_details.invocation_metadata
        try:
            name = self._authentication.identify(method, shown)
        except (Unauthenticated, Forbidden) as error:
            return _refusal(error)
        return self._checked(handler, name, method)

    def _checked(self, handler: Any, name: str, method: str) -> Any:
        """Return a method that checks its caller's certificate and the limits of its calls, and
        then does what `handler` does.

        Both can be done only in a method, and a method with one request begins when gRPC has read
        it. So this method takes a stream of requests, and reads the one itself.
        """

        async def with_one_reply(requests: Any, context: Context) -> Any:
            async with self._admitted(context, name, method):
                request = await _request_of(handler, requests, context)
                return await (handler.stream_unary or handler.unary_unary)(request, context)

        async def with_replies(requests: Any, context: Context) -> None:
            async with self._admitted(context, name, method):
                request = await _request_of(handler, requests, context)
                replies: AsyncIterator[Any] | Awaitable[None]
                replies = (handler.stream_stream or handler.unary_stream)(request, context)
                if isinstance(replies, AsyncIterator):
                    async for reply in replies:
                        self._authentication.require_valid(name)
                        await context.write(reply)
                else:
                    await replies

        encoding = handler.request_deserializer, handler.response_serializer
        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(with_replies, *encoding)
        return grpc.stream_unary_rpc_method_handler(with_one_reply, *encoding)

    @asynccontextmanager
    async def _admitted(self, context: Context, name: str, method: str) -> AsyncIterator[None]:
        """Check a call, and count it for as long as the context lasts."""
        try:
            if self._authentication.certified:
                self._authentication.confirm(name, context)
            with self._limits.admitted(name, method):
                try:
                    yield
                except DecodeError as error:
                    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except (Unauthenticated, Forbidden) as error:
            await context.abort(STATUS[type(error)], str(error))
        except Overloaded as error:
            after = (RETRY_AFTER, f"{error.retry_after_s:.3f}")
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error), (after,))
        except grpc.aio.AbortError:
            if context.code() is grpc.StatusCode.INVALID_ARGUMENT:
                self._limits.faulty(name)
            raise


def _refusal(error: Unauthenticated | Forbidden) -> Any:
    """Return a method that answers with the error's status and reads nothing."""

    async def refuse(requests: Any, context: Context) -> None:
        await context.abort(STATUS[type(error)], str(error))

    return grpc.stream_stream_rpc_method_handler(refuse)


async def _request_of(handler: Any, requests: Any, context: Context) -> Any:
    """What the method of `handler` takes: its one request, or the stream of them."""
    if handler.request_streaming:
        return requests
    request = await context.read()
    if request is grpc.aio.EOF:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no request")
    return request
