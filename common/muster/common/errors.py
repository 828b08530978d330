"""Everything muster raises on purpose.

* MusterError
  - ConfigError               a scenario, flag or file is wrong; nothing was started
  - ProtocolError             somebody broke the contract in proto/
    + LocalProtocolError      it was us: a bug, let it crash
    + RemoteProtocolError     it was the peer: refuse, count it, carry on
    + Unauthenticated         the peer did not show a valid token or session
  - TransportError            the network failed; `definite`: the call certainly did not run
    + Unreachable             definite
    + Interrupted             indefinite: timed out, reset, or cancelled after sending
  - LedgerError               the run folder's account is missing, damaged or of another schema
  - Diverged                  a sum left the range in which it is exact: an outcome, not a crash
  - RunFailed                 the run ended without its result; the message says where to look
    + LaunchFailed            a process could not be started, or died unasked
      - EndedBeforeReady      it died while it started, and can be started again

Messages say what was expected, what was found, and what to do next.
"""

import sqlite3


class MusterError(Exception):
    """Root of everything muster raises on purpose."""


class ConfigError(MusterError):
    """A scenario, flag or file is wrong; nothing was started."""


class ProtocolError(MusterError):
    """Somebody broke the contract in proto/."""


class LocalProtocolError(ProtocolError):
    """It was us: a bug, let it crash."""


class RemoteProtocolError(ProtocolError):
    """It was the peer: refuse, count it, carry on."""


class Unauthenticated(ProtocolError):
    """The peer did not show a valid token or session."""


class TransportError(MusterError):
    """The network failed. Repeat a call if the error is definite or the call idempotent."""

    definite = False


class Unreachable(TransportError):
    """The call certainly did not run."""

    definite = True


class Interrupted(TransportError):
    """The call may or may not have run: timed out, reset, or cancelled after sending."""


class LedgerError(MusterError):
    """The run folder's account is missing, damaged or of another schema."""


class Diverged(MusterError):
    """A sum left the range in which it is exact: an outcome, not a crash."""


class RunFailed(MusterError):
    """The run ended without its result; the message says where to look."""


class LaunchFailed(RunFailed):
    """A process could not be started, or died unasked."""


def reason_of(error: BaseException) -> str:
    """Why something failed, in a sentence for a person."""
    if isinstance(error, MusterError):
        return str(error)
    if isinstance(error, OSError) and error.strerror is not None:
        where = f"{error.filename}: " if error.filename is not None else ""
        return f"the operating system refused: {where}{error.strerror}"
    if isinstance(error, sqlite3.Error):
        return f"the ledger could not be read or written: {error}"
    return f"an error that nobody foresaw, {type(error).__name__}: {error}"
