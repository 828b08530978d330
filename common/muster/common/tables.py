"""State machines as tables: (phase, event) to phase."""

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
        who: whose phase it is, for the message.

    Raises:
        LocalProtocolError: the table has no row for it.
    """
    try:
        return table[phase, event]
    except KeyError:
        raise LocalProtocolError(
            f"{who}: {event.value!r} cannot happen while {phase.value}"
        ) from None
