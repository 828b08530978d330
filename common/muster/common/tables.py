"""State machines as tables that map (phase, event) to the next phase."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from muster.common.errors import LocalProtocolError

Phase = TypeVar("Phase", bound=StrEnum)
Event = TypeVar("Event", bound=StrEnum)


def next_phase(
    table: Mapping[tuple[Phase, Event], Phase], phase: Phase, event: Event, who: str
) -> Phase:
    """The phase that `event` leads to from `phase`.

    Args:
        who: name of the state machine, for the message.

    Raises:
        LocalProtocolError: the table has no row for this phase and event.
    """
    try:
        return table[phase, event]
    except KeyError:
        raise LocalProtocolError(
            f"{who}: {event.value!r} cannot happen while {phase.value}"
        ) from None
