"""The errors of muster for the errors of gRPC."""

import grpc

from muster.common.errors import (
    Interrupted,
    RemoteProtocolError,
    Unauthenticated,
    Unreachable,
)

_ERRORS: dict[grpc.StatusCode, type[Exception]] = {
    grpc.StatusCode.UNAVAILABLE: Interrupted,
    grpc.StatusCode.DEADLINE_EXCEEDED: Interrupted,
    grpc.StatusCode.CANCELLED: Interrupted,
    grpc.StatusCode.UNKNOWN: Interrupted,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
}


_OF_CORE = "from Core"


def error_of(error: grpc.aio.AioRpcError, definite: bool = False) -> Exception:
    """The error of muster for an error of gRPC.

    Args:
        definite: whether a call that failed for the network certainly did not run.
    """
    kind = _ERRORS.get(error.code(), RemoteProtocolError)
    # gRPC reports this when a write meets a stream that has just ended.
    if error.code() is grpc.StatusCode.INTERNAL and _OF_CORE in (error.details() or ""):
        kind = Interrupted
    if definite and kind is Interrupted:
        kind = Unreachable
    return kind(f"{error.code().name}: {error.details()}")
