"""The kinds of clock that a run can have."""

from typing import Final, Literal

ClockKind = Literal["rounds", "modelled", "wall", "scaled"]
"""rounds, modelled: lockstep. wall, scaled: clocks that run (docs/scenario.md)."""

LOCKSTEP: Final = frozenset({"rounds", "modelled"})


def is_lockstep(kind: object) -> bool:
    """Whether a clock of this kind advances with the rounds instead of with the wall clock."""
    return kind in LOCKSTEP


def idle_s(kind: ClockKind, round_s: float) -> float | None:
    """On the clock `modelled`, how long a round without a deadline lasts in which no device works:
    a step of device life. None on the other clocks, whose rounds do not last as long as their work.
    """
    return round_s if kind == "modelled" else None
