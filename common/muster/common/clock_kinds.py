"""The kinds of clock that a run can have."""

from typing import Final, Literal

ClockKind = Literal["rounds", "wall", "scaled"]
"""rounds: lockstep. wall, scaled: clocks that run (docs/scenario.md)."""

LOCKSTEP: Final = frozenset({"rounds"})


def is_lockstep(kind: object) -> bool:
    """Whether a clock of this kind advances with the rounds instead of with the wall clock."""
    return kind in LOCKSTEP
