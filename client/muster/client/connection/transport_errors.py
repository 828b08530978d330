"""The errors of muster for the errors of gRPC."""

import grpc

from muster.common.errors import (
    Interrupted,
    Overloaded,
    RemoteProtocolError,
    Unauthenticated,
    Unreachable,
)
from muster.wire import RETRY_AFTER

_ERRORS: dict[grpc.StatusCode, type[Exception]] = {
    grpc.StatusCode.UNAVAILABLE: Interrupted,
    grpc.StatusCode.DEADLINE_EXCEEDED: Interrupted,
    grpc.StatusCode.CANCELLED: Interrupted,
    grpc.StatusCode.UNKNOWN: Interrupted,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
}


_OF_CORE = "from Core"

_LONGEST_S = 60.0
"""The longest time for which a device waits because the server asks it to."""


def error_of(error: grpc.aio.AioRpcError, definite: bool = False) -> Exception:
    """The error of muster for an error of gRPC.

    Args:
        definite: whether a call that failed for the network certainly did not run.
    """
    message = f"{error.code().name}: {error.details()}"
    if (wait_s := _retry_after_s(error)) is not None:
        return Overloaded(message, wait_s)
    kind = _ERRORS.get(error.code(), RemoteProtocolError)
    # gRPC reports this when a write meets a stream that has just ended.
    if error.code() is grpc.StatusCode.INTERNAL and _OF_CORE in (error.details() or ""):
        kind = Interrupted
    if definite and kind is Interrupted:
        kind = Unreachable
    return kind(message)


def _retry_after_s(error: grpc.aio.AioRpcError) -> float | None:
    """Seconds after which the server lets the caller try again; None if it does not say so."""
    for key, value in error.trailing_metadata() or ():
        if key == RETRY_AFTER:
            try:
                return min(_LONGEST_S, max(0.0, float(value)))
            except ValueError:
                return _LONGEST_S
    return None


def least_wait_s(error: Exception) -> float:
    """Seconds for which a caller that got this error should wait at least."""
    return error.retry_after_s if isinstance(error, Overloaded) else 0.0
