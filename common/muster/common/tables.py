"""State machines as tables that map (phase, event) to the next phase."""

from enum import StrEnum

from muster.common.errors import LocalProtocolError


def impossible(who: str, phase: StrEnum, event: StrEnum) -> LocalProtocolError:
    """The error of an event for which the table of a state machine has no row in a phase.

    Args:
        who: name of the state machine.
    """
    return LocalProtocolError(f"{who}: {event.value!r} cannot happen while {phase.value}")
