"""Adds both services to a gRPC server and checks their callers.

gRPC reads the request of a unary call, up to the largest message, before it calls the method. The
caller is therefore checked earlier, when the method is looked up, so that a call without a valid
credential costs no memory.
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
"""Checks the metadata of a call. Takes the method's name and the metadata; raises
`Unauthenticated`."""


def add_services(server: Any, fleet: FleetService, operator: OperatorService) -> None:
    """Add both services to `server`, for callers that present a valid credential.

    Args:
        server: a server made by `muster.wire.transport.Transport.server`.
    """
    add_fleet_to_server(fleet, _Guard(server, fleet.authenticate))  # type: ignore[arg-type]
    operator_pb2_grpc.add_OperatorServicer_to_server(
        operator,
        _Guard(server, operator.authenticate),  # type: ignore[arg-type]
    )


class _Guard:
    """Stands in for a gRPC server; adds an authentication check to the handlers added to it."""

    def __init__(self, server: Any, authenticate: Authenticate) -> None:
        self._server = server
        self._authenticate = authenticate

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        guarded = tuple(_Guarded(handler, self._authenticate) for handler in handlers)
        self._server.add_generic_rpc_handlers(guarded)

    def add_registered_method_handlers(self, service: str, handlers: object) -> None:
        """Do nothing: the generated code registers a service twice, and the generic handlers are
        enough."""


class _Guarded(grpc.GenericRpcHandler):
    """Handlers that refuse an unauthenticated caller before any of the request is read."""

    def __init__(self, handlers: grpc.GenericRpcHandler, authenticate: Authenticate) -> None:
        self._handlers = handlers
        self._authenticate = authenticate

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        handler = self._handlers.service(handler_call_details)
        if handler is None:  # the method of another service, or unknown
            return None
        method = handler_call_details.method.rpartition("/")[2]
        try:
            self._authenticate(method, handler_call_details.invocation_metadata)
        except Unauthenticated as error:
            return _refusal(str(error))
        return handler


def _refusal(detail: str) -> Any:
    """Return a method that answers UNAUTHENTICATED and reads nothing."""

    async def refuse(requests: Any, context: Context) -> None:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, detail)

    return grpc.stream_stream_rpc_method_handler(refuse)
