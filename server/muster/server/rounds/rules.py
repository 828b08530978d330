"""The rules of a round, which follow from the scenario and its mode."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that decide when a round closes and which updates count.

    Attributes:
        lockstep: decide by modelled durations instead of arrival.
        goal: the number of updates that count at most; on the wall clock the round closes when it
            is reached. None: all accepted updates count.
        deadline_s: the longest duration of a round; None: no deadline. In lockstep it limits the
            modelled seconds of each update. On the wall and scaled clocks it is wall seconds.
        window_s: in lockstep, scenario seconds after the opening of the round; updates that finish
            later do not count in this round. None: no limit.
        least: if fewer updates could count, none does.
        carries: whether updates that do not count in the round of their call may count later.
        max_staleness: the largest staleness of an update that counts; None: any.
        extra_s: in lockstep, takes the clients whose updates arrived and returns, by client, the
            modelled seconds that shared links add to their durations; None: no link is shared.
        awaits_answers: in lockstep, a device whose update has arrived has spoken only when its
            answer has arrived too, because the answer has its covariates X.
    """

    lockstep: bool
    goal: int | None = None
    deadline_s: float | None = None
    window_s: float | None = None
    least: int = 0
    carries: bool = False
    max_staleness: int | None = None
    extra_s: Callable[[Sequence[str]], Mapping[str, float]] | None = None
    awaits_answers: bool = False
