"""Limits the calls on which the server works at the same time, and how often a caller may begin
some of them.

gRPC itself limits connections, handshakes, metadata and the streams of a connection
(`muster.wire.channels`), but it does not know who calls. These limits are for each caller, that is,
for the devices of one process, so that none holds up the others:

| what | limit | beyond it |
|---|---|---|
| calls of a caller at once | `CALLS` | refused |
| calls of all callers at once, beyond the first `OWN_CALLS` of each | `SHARED_CALLS` | refused |
| enrollments of a caller | `ENROLLMENTS`, then one every `ENROLLMENT_S` seconds | refused |
| malformed calls of a caller | `FAULTS`, then one every `FAULT_S` seconds | all calls refused |

The newest call is refused, before any of its request is read, and those before it go on. The caller
hears after how many seconds it may try again. A caller that is not authenticated has no state here:
its call is refused anyway, and nothing of it is read.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from muster.common.clock import Clock
from muster.common.errors import Overloaded
from muster.server.rpc.authentication import ENROLL

OWN_CALLS: Final = 4
"""Calls that a caller may always have: a stream with the one that replaces it, and a transfer with
the one that replaces it."""

SHARED_CALLS: Final = 256
"""Further calls of all callers together. Each may hold a message of a mebibyte in memory."""

CALLS: Final = 64
"""Calls of one caller: the streams of its two connections. Only callers with credentials of the run
count, so five hostile ones could use up the shared calls; the others keep their own."""

ENROLLMENTS: Final = 100
ENROLLMENT_S: Final = 0.1
"""An enrollment takes a millisecond of the server. On a clock that is scaled to an hour a second, a
device may come and go several times a second."""

FAULTS: Final = 100
FAULT_S: Final = 1.0
"""A correct device makes no malformed call. Each costs the server up to a message to decode."""

_AGAIN_S: Final = 1.0
"""Seconds after which a caller may try again if there were too many calls at once."""


class TokenBucket:
    """Allows `burst` at once, and then one every `every_s` seconds."""

    def __init__(self, burst: int, every_s: float, clock: Clock) -> None:
        self._burst = burst
        self._every_s = every_s
        self._clock = clock
        self._tokens = float(burst)
        self._filled_at = clock.monotonic()

    def wait_s(self) -> float:
        """Seconds until there is a token; 0 if there is one now."""
        now = self._clock.monotonic()
        filled = (now - self._filled_at) / self._every_s
        self._tokens, self._filled_at = min(self._burst, self._tokens + filled), now
        return max(0.0, 1.0 - self._tokens) * self._every_s

    def take(self) -> None:
        """Take a token, if there is one."""
        if self.wait_s() == 0.0:
            self._tokens -= 1.0


class _CallerState:
    """What the server counts of one caller."""

    def __init__(self, clock: Clock) -> None:
        self.calls = 0
        self.enrollments = TokenBucket(ENROLLMENTS, ENROLLMENT_S, clock)
        self.faults = TokenBucket(FAULTS, FAULT_S, clock)


class CallLimits:
    """Admits calls of authenticated callers, and refuses those beyond the limits."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._callers: dict[str, _CallerState] = {}
        self._shared = 0

    @contextmanager
    def admitted(self, name: str, method: str) -> Iterator[None]:
        """Count a call for as long as the context lasts.

        Args:
            name: the name of its caller, which is authenticated.
            method: the full name, `/muster.v1.Fleet/Enroll`.

        Raises:
            Overloaded: the call is one too many.
        """
        caller = self._callers.setdefault(name, _CallerState(self._clock))
        self._require_room(caller, name, method)
        self._shared += caller.calls >= OWN_CALLS
        caller.calls += 1
        try:
            yield
        finally:
            caller.calls -= 1
            self._shared -= caller.calls >= OWN_CALLS

    def faulty(self, name: str) -> None:
        """Count a malformed call of a caller."""
        self._callers[name].faults.take()

    def _require_room(self, caller: _CallerState, name: str, method: str) -> None:
        if wait_s := caller.faults.wait_s():
            raise Overloaded(f"{name} has made too many malformed calls", wait_s)
        if caller.calls >= CALLS:
            raise Overloaded(f"{name} has {CALLS} calls open; expected fewer", _AGAIN_S)
        if caller.calls >= OWN_CALLS and self._shared >= SHARED_CALLS:
            raise Overloaded(
                f"the server works on {SHARED_CALLS} calls beyond the {OWN_CALLS} that each caller "
                f"may have; {name} has {caller.calls}",
                _AGAIN_S,
            )
        if method == ENROLL:
            if wait_s := caller.enrollments.wait_s():
                raise Overloaded(f"{name} enrolls too often", wait_s)
            caller.enrollments.take()


def most_connections(processes: int, descriptors: int) -> int:
    """The most connections that the server's port takes at the same time; gRPC closes those beyond.

    A device process has two connections. For a while it may have four, if the server has not yet
    noticed that the two before them are dead.

    Args:
        processes: the number of device processes.
        descriptors: how many files the server may have open. Half are for its other files, unless
            the fleet needs them.
    """
    return min(4 * processes + OTHER_CONNECTIONS, max(2 * processes + 64, descriptors // 2))


OTHER_CONNECTIONS: Final = 4096
"""Connections beyond those of the fleet. A silent one takes 15 to 35 KiB of memory, and one with
calls 270 KiB; with fewer connections, strangers could use them up more easily."""
