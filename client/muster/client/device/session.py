"""The session of a device as a state machine, without I/O and without a clock.

Rule 1: every change of phase is a row of TRANSITIONS.

Rule 2: a broken connection (`LOST`) is no failure. When the device comes back, the server calls it
again for the round it was working on, and the device gives the same update.

Rule 3: in lockstep every accepted call ends in an update or an abort. Only on the wall clock or a
scaled one may a device drop a call (`OUTDATED`), because its round was closed meanwhile.

    AWAY --WOKE--> ENROLLING --ENROLLED--> IDLE --CALLED--> TRAINING --TRAINED--> DELIVERING
     ^                 |                    ^ |                                       |
     +------LOST-------+--REFUSED--> ENDED  | +--CALLED_AGAIN (it holds the update)-->+
                              ^             +<--OUTDATED, GAVE_UP, from TRAINING      |
                              |             +------------------DELIVERED--------------+
                              +--GOODBYE-- from any phase with a connection
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from muster.common.tables import impossible


class SessionPhase(StrEnum):
    AWAY = "away"
    ENROLLING = "enrolling"
    IDLE = "idle"
    TRAINING = "training"
    DELIVERING = "delivering"
    ENDED = "ended"


class SessionEvent(StrEnum):
    WOKE = "woke"
    ENROLLED = "enrolled"
    REFUSED = "refused"
    CALLED = "called"
    CALLED_AGAIN = "called again"
    DECLINED = "declined"
    GAVE_UP = "gave up"
    TRAINED = "trained"
    DELIVERED = "delivered"
    OUTDATED = "outdated"
    LOST = "lost"
    GOODBYE = "goodbye"


TRANSITIONS: Mapping[tuple[SessionPhase, SessionEvent], SessionPhase] = MappingProxyType(
    {
        (SessionPhase.AWAY, SessionEvent.WOKE): SessionPhase.ENROLLING,
        (SessionPhase.ENROLLING, SessionEvent.ENROLLED): SessionPhase.IDLE,
        (SessionPhase.ENROLLING, SessionEvent.REFUSED): SessionPhase.ENDED,
        (SessionPhase.ENROLLING, SessionEvent.LOST): SessionPhase.AWAY,
        (SessionPhase.IDLE, SessionEvent.CALLED): SessionPhase.TRAINING,
        (SessionPhase.IDLE, SessionEvent.CALLED_AGAIN): SessionPhase.DELIVERING,
        (SessionPhase.IDLE, SessionEvent.DECLINED): SessionPhase.IDLE,
        (SessionPhase.IDLE, SessionEvent.LOST): SessionPhase.AWAY,
        (SessionPhase.IDLE, SessionEvent.GOODBYE): SessionPhase.ENDED,
        (SessionPhase.TRAINING, SessionEvent.TRAINED): SessionPhase.DELIVERING,
        (SessionPhase.TRAINING, SessionEvent.GAVE_UP): SessionPhase.IDLE,
        (SessionPhase.TRAINING, SessionEvent.LOST): SessionPhase.AWAY,
        (SessionPhase.TRAINING, SessionEvent.GOODBYE): SessionPhase.ENDED,
        (SessionPhase.DELIVERING, SessionEvent.DELIVERED): SessionPhase.IDLE,
        (SessionPhase.DELIVERING, SessionEvent.LOST): SessionPhase.AWAY,
        (SessionPhase.DELIVERING, SessionEvent.GOODBYE): SessionPhase.ENDED,
    }
)

ON_RUNNING_CLOCKS: Mapping[tuple[SessionPhase, SessionEvent], SessionPhase] = MappingProxyType(
    # On these clocks a round may close while its model is still on the way.
    {**TRANSITIONS, (SessionPhase.TRAINING, SessionEvent.OUTDATED): SessionPhase.IDLE}
)


class Session:
    """The session of a device: the phase that it is in.

    Args:
        lockstep: whether a round waits for every device that it called.
    """

    def __init__(self, client: str, lockstep: bool) -> None:
        self.client = client
        self.phase = SessionPhase.AWAY
        self._transitions = TRANSITIONS if lockstep else ON_RUNNING_CLOCKS

    def happen(self, event: SessionEvent) -> SessionPhase:
        """Move to the phase that `event` leads to and return it.

        Raises:
            LocalProtocolError: `event` has no row for this phase; the phase is unchanged.
        """
        try:
            self.phase = self._transitions[self.phase, event]
        except KeyError:
            raise impossible(self.client, self.phase, event) from None
        return self.phase
