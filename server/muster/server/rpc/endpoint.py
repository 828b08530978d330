"""Both services at a server's port, and who may call them.

gRPC reads the request of a unary call, up to the largest message, before it calls the method. The
caller is therefore checked earlier, when the method is looked up: a call without a valid credential
costs no memory.
"""

from collections.abc import Callable, Sequence
from typing import Any

import grpc

from muster.common.errors import Unauthenticated
from muster.server.rpc.operator import OperatorService
from muster.server.rpc.service import Context, FleetService, Metadata
from muster.v1 import operator_pb2_grpc
from muster.wire.handlers import add_fleet_to_server

Authenticate = Callable[[str, Metadata], None]
"""Checks the metadata of a call of a method; raises `Unauthenticated`."""


def add_services(server: Any, fleet: FleetService, operator: OperatorService) -> None:
    """Serve both services at `server`, to callers that show who they are.

    Args:
        server: as `muster.wire.transport.Transport.server` makes it.
    """
    add_fleet_to_server(fleet, _Guard(server, fleet.authenticate))  # type: ignore[arg-type]
    operator_pb2_grpc.add_OperatorServicer_to_server(
        operator,
        _Guard(server, operator.authenticate),  # type: ignore[arg-type]
    )


class _Guard:
    """A server, for those who add handlers to it: their callers are checked."""

    def __init__(self, server: Any, authenticate: Authenticate) -> None:
        self._server = server
        self._authenticate = authenticate

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        guarded = tuple(_Guarded(handler, self._authenticate) for handler in handlers)
        self._server.add_generic_rpc_handlers(guarded)

    def add_registered_method_handlers(self, service: str, handlers: object) -> None:
        """The generated code registers a service twice; the generic handlers are enough."""


class _Guarded(grpc.GenericRpcHandler):
    """Handlers that refuse a caller before anything of the request is read."""

    def __init__(self, handlers: grpc.GenericRpcHandler, authenticate: Authenticate) -> None:
        self._handlers = handlers
        self._authenticate = authenticate

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        handler = self._handlers.service(handler_call_details)
        if handler is None:  # another service's method, or nobody's
            return None
        method = handler_call_details.method.rpartition("/")[2]
        try:
            self._authenticate(method, handler_call_details.invocation_metadata)
        except Unauthenticated as error:
            return _refusal(str(error))
        return handler


def _refusal(detail: str) -> Any:
    """A method that answers UNAUTHENTICATED and reads nothing."""

    async def refuse(requests: Any, context: Context) -> None:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, detail)

    return grpc.stream_stream_rpc_method_handler(refuse)
