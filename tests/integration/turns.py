"""Kills of a device and of the server at the turns of rounds."""

from collections.abc import Sequence
from typing import Literal

from muster.simulation.faults import KillAt

_TURNS: Sequence[Literal["round_opened", "received", "round_committed"]] = (
    "round_opened",
    "received",
    "round_committed",
)


def killed_at_turns(first: int) -> list[KillAt]:
    """A device dies when the round `first` opens, when an update arrives in the next one, and when
    the one after that is committed; and so does the server, a round later."""
    return [
        KillAt(process, event, round)
        for process, begin in (("dev-0001", first), ("server", first + 1))
        for round, event in enumerate(_TURNS, start=begin)
    ]
