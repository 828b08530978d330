"""When faults happen, in rounds or in scenario seconds.

All times of a fault are counted before they are made, so a scenario that asks for too many of them
is refused at once.
"""

import math
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from muster.common.faults import TracedFault
from muster.common.seeds import stream
from muster.emulator.faults.settings import FaultTrigger, ScheduledFault
from muster.server.rounds.steps import first_step


class RunTime(NamedTuple):
    """The time of a run, as far as it is known before the run.

    Attributes:
        lockstep: whether rounds advance scenario time.
        fixed: whether round r begins at (r − 1) · round_s.
        rounds: number of rounds that are sure to open. The buffered mode may need more of them for
            its versions.
        horizon_s: scenario seconds until which faults recur.
    """

    lockstep: bool
    fixed: bool
    round_s: float
    rounds: int
    horizon_s: float

    def first_step(self, scenario_s: float) -> int:
        """The first step that does not begin before a scenario second."""
        return first_step(scenario_s, self.round_s)


class TooOften(Exception):
    """A fault happens more often than is allowed."""


class FaultTimes(NamedTuple):
    """Beginning and end of an occurrence, in rounds or in scenario seconds."""

    first_round: int | None = None
    end_round: int | None = None
    begin_s: float | None = None
    end_s: float | None = None

    def in_rounds(self, time: RunTime) -> "FaultTimes | None":
        """The times in rounds and in seconds, if both are known; None if no round begins in
        them."""
        if not time.fixed:
            return self
        if self.first_round is not None:
            first, end = self.first_round, self.end_round
        else:
            assert self.begin_s is not None
            first = time.first_step(self.begin_s) + 1
            end = None if self.end_s is None else time.first_step(self.end_s) + 1
            if (end is not None and end <= first) or first > time.rounds:
                return None
        round_s = time.round_s
        return FaultTimes(
            first, end, (first - 1) * round_s, None if end is None else (end - 1) * round_s
        )


def times_of(
    fault: ScheduledFault, seed: int, time: RunTime, targets: list[str], most: int
) -> list[tuple[FaultTimes, list[str]]]:
    """When a fault without `when.event` happens, and whom it may strike each time; in order.

    Args:
        most: the most times that are allowed.

    Raises:
        ValueError: it begins after the run.
        TooOften: it happens more often.
    """
    when = fault.when
    if when.mean_up_s is not None:
        if _expected_times(when, time, targets) > 2 * most:
            raise TooOften
        times = sorted(islice(_random_times(fault, seed, time, targets), most + 1))
    else:
        count = _planned_count(when, time)
        if count == 0:
            raise ValueError("when: it begins after the last round; choose an earlier time")
        if count > most:
            raise TooOften
        injected = not isinstance(fault.do, TracedFault)
        times = [(each, targets) for each in _planned_times(fault, time, injected)]
    if len(times) > most:
        raise TooOften
    return times


def _planned_count(when: FaultTrigger, time: RunTime) -> int:
    """How often a fault happens that does not come and go at random."""
    if when.round is not None:
        last = time.rounds if when.every_rounds is not None else min(time.rounds, when.round)
        return len(range(when.round, last + 1, when.every_rounds or 1))
    assert when.at_s is not None
    if when.every_s is None or when.at_s >= time.horizon_s:
        return int(when.at_s < time.horizon_s)
    return math.ceil((time.horizon_s - when.at_s) / when.every_s)


def _planned_times(fault: ScheduledFault, time: RunTime, injected: bool) -> Iterator[FaultTimes]:
    when, count = fault.when, _planned_count(fault.when, time)
    if when.round is not None:
        for first in (when.round + number * (when.every_rounds or 0) for number in range(count)):
            end = None if fault.for_rounds is None else first + fault.for_rounds
            if fault.for_s is not None and time.fixed and not injected:
                begin_s = (first - 1) * time.round_s
                yield FaultTimes(begin_s=begin_s, end_s=begin_s + fault.for_s)
            else:
                yield FaultTimes(first_round=first, end_round=end)
        return
    assert when.at_s is not None
    for number in range(count):
        at_s = when.at_s + number * (when.every_s or 0.0)
        if fault.for_rounds is not None and time.fixed:
            first = time.first_step(at_s) + 1
            yield FaultTimes(first_round=first, end_round=first + fault.for_rounds)
        else:
            lasts_s = None if injected and time.lockstep else fault.for_s
            yield FaultTimes(begin_s=at_s, end_s=None if lasts_s is None else at_s + lasts_s)


def _expected_times(when: FaultTrigger, time: RunTime, targets: list[str]) -> float:
    """How often a fault comes and goes at random, in the mean."""
    assert when.mean_up_s is not None
    assert when.mean_down_s is not None
    own = 1 if when.together else len(targets)
    return own * time.horizon_s / (when.mean_up_s + when.mean_down_s)


def _random_times(
    fault: ScheduledFault, seed: int, time: RunTime, targets: list[str]
) -> Iterator[tuple[FaultTimes, list[str]]]:
    """Times of a fault that comes and goes, of each target by itself or of all together. Both the
    time without it and the time with it are exponential."""
    up_s, down_s = fault.when.mean_up_s, fault.when.mean_down_s
    assert up_s is not None
    assert down_s is not None
    together = [("all", targets)] if fault.when.together else [(t, [t]) for t in targets]
    for name, struck in together:
        draws = stream(seed, "fault", str(fault.name), "times", name)
        at_s = 0.0
        while True:
            begin_s = at_s + draws.exponential(up_s)
            at_s = begin_s + draws.exponential(down_s)
            if begin_s >= time.horizon_s:
                break
            yield FaultTimes(begin_s=begin_s, end_s=at_s), struck
