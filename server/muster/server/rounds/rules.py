"""The rules of a round, which follow from the scenario and its mode."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Self

from muster.server.rounds.cohort import WorkTime
from muster.server.rounds.life import LIVE, FleetLife
from muster.server.rounds.modes.contract import Mode

_IN_VAIN = 20
"""The fewest rounds after which a device counts as silent."""

Sharing = Callable[[Mapping[str, WorkTime]], Mapping[str, WorkTime]]
"""Takes the times of work, by client, as if no link was shared; returns those with shared links."""


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
        outlives_round: whether updates that do not count in the round of their call may count
            later.
        max_staleness: the largest staleness of an update that counts; None: any.
        each: whether the round also ends when one more update has finished.
        sharing: in lockstep, takes the times of the work whose updates arrived, as if every device
            had its link for itself, and returns the times with shared links; None: no link is
            shared.
        awaits_answers: in lockstep, a device whose update has arrived has spoken only when its
            answer has arrived too, because the answer has its covariates X.
        idle_s: on the clock `modelled`, whose rounds last as long as their work, how long a round
            without a deadline lasts in which no device works; None on the other clocks.
        life: decides who is called, and whose updates count.
    """

    lockstep: bool
    goal: int | None = None
    deadline_s: float | None = None
    window_s: float | None = None
    least: int = 0
    outlives_round: bool = False
    max_staleness: int | None = None
    each: bool = False
    sharing: Sharing | None = None
    awaits_answers: bool = False
    idle_s: float | None = None
    life: FleetLife = LIVE

    def open_s(self, deadline_s: float | None) -> float | None:
        """The longest time that a round stays open, in seconds; None: there is no limit.

        Args:
            deadline_s: `server.deadline_s`, for modes whose rules have no deadline.
        """
        return deadline_s if self.deadline_s is None else self.deadline_s

    @property
    def most_rounds(self) -> float:
        """On a clock that runs, how many rounds an assignment without an update stays open. Its
        device may be silent for ever, and `max_staleness` + 1 versions end it, but none are made
        while all that may work are silent. If updates come, so many rounds make these versions;
        and slow work may take longer than some rounds that wait in vain."""
        if self.lockstep or self.max_staleness is None:
            return math.inf
        return max(_IN_VAIN, (self.max_staleness + 1) * (self.least if self.each else 1))

    @property
    def limit_s(self) -> float:
        """In lockstep, the most modelled seconds of an update that counts."""
        return math.inf if self.deadline_s is None else self.deadline_s

    def within(self, timeout_s: float | None) -> Self:
        """These rules with a deadline of at most so many seconds; None: as they are."""
        limits = [limit for limit in (self.deadline_s, timeout_s) if limit is not None]
        return replace(self, deadline_s=min(limits, default=None))

    @classmethod
    def of(
        cls,
        mode: Mode,
        goal: int | None,
        deadline_s: float | None,
        lockstep: bool,
        awaits_answers: bool = False,
        idle_s: float | None = None,
        life: FleetLife = LIVE,
    ) -> Self:
        """The rules that follow from a mode.

        Args:
            goal: the goal of the scenario, or of its selection.
            deadline_s: `server.deadline_s`.
        """
        completion = mode.completion(goal, deadline_s)
        return cls(
            lockstep,
            completion.goal,
            completion.deadline_s,
            completion.window_s,
            completion.least,
            mode.outlives_round(),
            mode.oldest(),
            completion.each,
            awaits_answers=awaits_answers,
            idle_s=idle_s,
            life=life,
        )
