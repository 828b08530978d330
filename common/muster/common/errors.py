"""The exceptions that muster raises on purpose.

* MusterError
  - ConfigError               a scenario, flag or file is wrong; nothing was started
  - ProtocolError             one side broke the contract in proto/
    + LocalProtocolError      this side broke it: a bug, let it crash
    + RemoteProtocolError     the peer broke it: refuse, count it, carry on
    + Unauthenticated         the peer did not show a valid token or session
    + Forbidden               the peer is known, and may not do this
  - Unencodable               a number does not fit its field of a message: ends one call
  - TransportError            the network failed; `definite`: the call certainly did not run
    + Unreachable             definite
    + Interrupted             indefinite: timed out, reset, or cancelled after sending
    + Overloaded              definite: the called program refused it for now, and says how long
  - LedgerError               the ledger in the run folder is missing, damaged or of another schema
  - Diverged                  a sum left the range in which it is exact: an outcome, not a crash
  - RunStops                  the run is to stop while a round waits for partial sums; defined in
                              `muster.server.updates.partial_sums`
  - RunFailed                 the run ended without its result; the message says where to look
    + LaunchFailed            a process could not be started, or died unexpectedly
      - EndedBeforeReady      a process died while it started, and can be started again; defined in
                              `muster.emulator.launch.backend`
      - NodeLost              a node of a cluster does not answer, or its program has ended; defined
                              in `muster.emulator.launch.ray.node_link`

A message says what was expected, what was found, and what to do next.
"""

import sqlite3
from collections.abc import Sequence

from muster.common.causes import outer_cause


class MusterError(Exception):
    """Base class of all exceptions that muster raises on purpose."""


class ConfigError(MusterError):
    """A scenario, flag or file is wrong; nothing was started."""


class ProtocolError(MusterError):
    """One side broke the contract in proto/."""


class LocalProtocolError(ProtocolError):
    """This side broke the contract: a bug, let it crash."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the contract: refuse, count it, carry on."""


class Unauthenticated(ProtocolError):
    """The peer did not show a valid token or session."""


class Forbidden(ProtocolError):
    """The peer is known, and may not do this."""


class Unencodable(MusterError):
    """A number does not fit its field of a message: ends the call that the message was for."""


class TransportError(MusterError):
    """The network failed. Repeat a call if the error is definite or the call idempotent."""

    definite = False


class Unreachable(TransportError):
    """The call certainly did not run."""

    definite = True


class Interrupted(TransportError):
    """The call may or may not have run: timed out, reset, or cancelled after sending."""


class Overloaded(TransportError):
    """The called program has too much to do, or the caller calls too often: try again later.

    Args:
        retry_after_s: seconds for which the caller should wait at least.
    """

    definite = True

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class LedgerError(MusterError):
    """The ledger in the run folder is missing, damaged or of another schema."""


class Diverged(MusterError):
    """A sum left the range in which it is exact: an outcome, not a crash."""


class RunFailed(MusterError):
    """The run ended without its result; the message says where to look."""


class LaunchFailed(RunFailed):
    """A process could not be started, or died unexpectedly."""


def listed(names: Sequence[object], most: int = 20) -> str:
    """Names for a message."""
    shown = ", ".join(map(str, names[:most]))
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown or "none"


def reason_of(error: BaseException) -> str:
    """The reason of an error, as a sentence for a person."""
    if isinstance(error, MusterError):
        return str(error)
    if cause := outer_cause(error):
        return cause
    if isinstance(error, OSError) and error.strerror is not None:
        where = f"{error.filename}: " if error.filename is not None else ""
        return f"the operating system refused: {where}{error.strerror}"
    if isinstance(error, sqlite3.Error):
        return f"the ledger could not be read or written: {error}"
    return f"an unexpected error, {type(error).__name__}: {error}"
