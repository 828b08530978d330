"""The phases of a round, the events that change them, and the table of their transitions.

SELECTING --CALLED--> COLLECTING --GOAL_REACHED, ALL_SPOKE, DEADLINE_PASSED--> FOLDING
    |                     |                                                      |
    |                     +--ABANDONED--> DROPPED <--ABANDONED-------------------+
    +--NOBODY_SELECTED--> FOLDING --FOLDED--> COMMITTING --COMMITTED--> DONE
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class RoundPhase(StrEnum):
    SELECTING = "selecting"
    COLLECTING = "collecting"
    FOLDING = "folding"
    COMMITTING = "committing"
    DONE = "done"
    DROPPED = "dropped"


class RoundEvent(StrEnum):
    CALLED = "called"
    NOBODY_SELECTED = "nobody selected"
    GOAL_REACHED = "goal reached"
    ALL_SPOKE = "all spoke"
    DEADLINE_PASSED = "deadline passed"
    FOLDED = "folded"
    COMMITTED = "committed"
    ABANDONED = "abandoned"


TRANSITIONS: Mapping[tuple[RoundPhase, RoundEvent], RoundPhase] = MappingProxyType(
    {
        (RoundPhase.SELECTING, RoundEvent.CALLED): RoundPhase.COLLECTING,
        (RoundPhase.SELECTING, RoundEvent.NOBODY_SELECTED): RoundPhase.FOLDING,
        (RoundPhase.SELECTING, RoundEvent.ABANDONED): RoundPhase.DROPPED,
        (RoundPhase.COLLECTING, RoundEvent.GOAL_REACHED): RoundPhase.FOLDING,
        (RoundPhase.COLLECTING, RoundEvent.ALL_SPOKE): RoundPhase.FOLDING,
        (RoundPhase.COLLECTING, RoundEvent.DEADLINE_PASSED): RoundPhase.FOLDING,
        (RoundPhase.COLLECTING, RoundEvent.ABANDONED): RoundPhase.DROPPED,
        (RoundPhase.FOLDING, RoundEvent.FOLDED): RoundPhase.COMMITTING,
        (RoundPhase.FOLDING, RoundEvent.ABANDONED): RoundPhase.DROPPED,
        # A commit under way is never abandoned: it may already be durable.
        (RoundPhase.COMMITTING, RoundEvent.COMMITTED): RoundPhase.DONE,
        # The deadline limits the wait for devices, not the server's own computation. Its timer may
        # fire at the moment at which the round closes.
        (RoundPhase.FOLDING, RoundEvent.DEADLINE_PASSED): RoundPhase.FOLDING,
        (RoundPhase.COMMITTING, RoundEvent.DEADLINE_PASSED): RoundPhase.COMMITTING,
        (RoundPhase.DONE, RoundEvent.DEADLINE_PASSED): RoundPhase.DONE,
        (RoundPhase.DROPPED, RoundEvent.DEADLINE_PASSED): RoundPhase.DROPPED,
    }
)
