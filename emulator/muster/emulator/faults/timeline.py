"""The timeline of a run's faults: which targets each fault strikes, and when.

It is a pure function of the scenario, its population and its seed, so it is the same in processes,
containers and simulations.

In lockstep (except in the buffered mode) every round begins at a known scenario time, so each
occurrence has both rounds and seconds. A fault acts in the rounds that begin while it lasts. In the
other cases an occurrence has what the scenario gives it: rounds or seconds.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pydantic import Field

from muster.common.config import Section
from muster.common.errors import ConfigError
from muster.common.faults import TracedFault
from muster.common.seeds import stream
from muster.emulator.faults.registry import AnyFault
from muster.emulator.faults.settings import FaultTarget, ScheduledFault
from muster.emulator.fleet.population import Resident

_MOST = 100_000
"""Most occurrences of all faults. A run could not show more of them."""


class RunTime(NamedTuple):
    """The time of a run, as far as it is known before the run.

    Attributes:
        lockstep: whether rounds advance scenario time.
        fixed: whether round r begins at (r − 1) · round_s.
        rounds: number of rounds.
        horizon_s: scenario seconds until which faults recur.
    """

    lockstep: bool
    fixed: bool
    round_s: float
    rounds: int
    horizon_s: float


class Occurrence(Section):
    """One time that a fault happens."""

    number: int
    """Number of the occurrence of this fault, from 1, in the order of their beginnings."""

    targets: list[str]
    """Clients, "server", or names of gateways."""

    first_round: int | None = None
    """The round at whose opening it begins; with `event`: in which it begins."""

    end_round: int | None = None
    """The first round in which it does not act any more. Absent: see `end_s` and `lasts_s`; without
    these, to the end of the run."""

    begin_s: float | None = None
    """Scenario seconds at which it begins."""

    end_s: float | None = None
    """Scenario seconds at which it ends."""

    lasts_s: float | None = None
    """Seconds from its beginning to its end, for faults that the supervisor injects: wall time in
    lockstep, otherwise scenario time."""

    event: str | None = None
    """The event in the journal with which it begins."""


class TimelineFault(Section):
    """A fault with everything that follows from the seed."""

    name: str
    do: AnyFault
    targets: list[str]
    """All that the fault may strike."""

    occurrences: list[Occurrence]


class FaultTimeline(Section):
    """All faults of a run."""

    faults: list[TimelineFault] = Field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.faults)


class GatewayGroup(NamedTuple):
    """A group that has a gateway."""

    group: str
    gateway: str


def resolve(
    faults: Sequence[ScheduledFault],
    seed: int,
    time: RunTime,
    residents: Sequence[Resident],
    gateways: Sequence[GatewayGroup],
) -> FaultTimeline:
    """Resolve faults to targets and times.

    Raises:
        ConfigError: a fault has no target or acts in no round, or faults occur too often.
    """
    found, total = [], 0
    for fault in faults:
        assert fault.name is not None
        try:
            targets = possible_targets(fault, seed, residents, gateways)
            occurrences = _occurrences(fault, seed, time, targets)
        except ValueError as error:
            raise ConfigError(f"faults.{fault.name}: {error}") from None
        total += len(occurrences)
        if total > _MOST:
            raise ConfigError(
                f"faults.{fault.name}: the faults occur more than {_MOST:,} times; choose longer "
                "times between them, or fewer targets"
            )
        found.append(
            TimelineFault(name=fault.name, do=fault.do, targets=targets, occurrences=occurrences)
        )
    return FaultTimeline(faults=found)


# --- targets -------------------------------------------------------------------------------------


def possible_targets(
    fault: ScheduledFault,
    seed: int,
    residents: Sequence[Resident],
    gateways: Sequence[GatewayGroup],
) -> list[str]:
    """All that a fault may strike.

    Raises:
        ValueError: nothing matches the target.
    """
    target = fault.target
    if target.role == "server":
        return ["server"]
    if target.role == "gateway":
        found = [gateway for group, gateway in gateways if target.group in (None, group)]
        if not found:
            raise ValueError("target: no such group has a gateway; give it a link")
        return found
    able = [r.client for r in residents if r.enrolled and target.group in (None, r.group)]
    if target.names is not None:
        if strange := sorted(set(target.names).difference(able)):
            raise ValueError(
                f"target.names: {strange[0]!r} is not an enrolled device of the target"
            )
        able = [client for client in able if client in set(target.names)]
    if not able:
        raise ValueError("target: no enrolled device matches it")
    return _drawn(able, target, seed, str(fault.name))


def _drawn(able: list[str], target: FaultTarget, seed: int, name: str) -> list[str]:
    """The devices that `count` or `percent` leaves, in the order of the population."""
    count = target.count
    if target.percent is not None:
        count = max(1, round(len(able) * target.percent / 100))
    if count is None:
        return able
    if count > len(able):
        raise ValueError(f"target.count: {count} devices, but only {len(able)} match the target")
    order = stream(seed, "fault", name, "targets").permutation(len(able))[:count]
    return [able[place] for place in sorted(order)]


# --- times ---------------------------------------------------------------------------------------


class _Times(NamedTuple):
    """Beginning and end of an occurrence, in rounds or in scenario seconds."""

    first_round: int | None = None
    end_round: int | None = None
    begin_s: float | None = None
    end_s: float | None = None


def _occurrences(
    fault: ScheduledFault, seed: int, time: RunTime, targets: list[str]
) -> list[Occurrence]:
    when = fault.when
    injected = not isinstance(fault.do, TracedFault)
    lasts_s = fault.for_s if injected else None
    if when.event is not None:
        return [
            Occurrence(
                number=1,
                targets=targets,
                event=when.event,
                first_round=when.round,
                lasts_s=lasts_s,
            )
        ]
    if when.mean_up_s is not None:
        times = sorted(_random_times(fault, seed, time, targets))
    else:
        times = [(each, targets) for each in _planned_times(fault, time, injected)]
        if not times:
            raise ValueError("when: it begins after the last round; choose an earlier time")
    found: list[Occurrence] = []
    for each, struck in times:
        known = _in_rounds(each, time)
        if known is None:
            if when.mean_up_s is None:
                raise ValueError(
                    f"when: no round begins between {each.begin_s:g} s and {each.end_s:g} s, so "
                    f"the fault would act in none; rounds begin every {time.round_s:g} s"
                )
            continue
        ends = {} if injected and time.lockstep else known._asdict()
        begins = {"first_round": known.first_round, "begin_s": known.begin_s}
        random_s = None
        if injected and when.mean_up_s is not None and each.end_s is not None:
            random_s = each.end_s - (each.begin_s or 0.0)
        found.append(
            Occurrence(
                number=len(found) + 1,
                targets=struck_targets(fault, seed, len(found) + 1, struck),
                lasts_s=lasts_s if random_s is None else random_s,
                **{**ends, **begins},
            )
        )
    return found


def struck_targets(fault: ScheduledFault, seed: int, number: int, targets: list[str]) -> list[str]:
    """The targets of one occurrence, of those that the fault may strike."""
    percent = fault.do.each_percent()
    if percent is None:
        return targets
    count = max(1, round(len(targets) * percent / 100))
    draws = stream(seed, "fault", str(fault.name), "occurrence", number)
    return [targets[place] for place in sorted(draws.permutation(len(targets))[:count])]


def _planned_times(fault: ScheduledFault, time: RunTime, injected: bool) -> Iterator[_Times]:
    when = fault.when
    if when.round is not None:
        firsts: Iterable[int] = (when.round,)
        if when.every_rounds is not None:
            firsts = range(when.round, time.rounds + 1, when.every_rounds)
        for first in firsts:
            if first > time.rounds:
                return
            end = None if fault.for_rounds is None else first + fault.for_rounds
            if fault.for_s is not None and time.fixed and not injected:
                begin_s = (first - 1) * time.round_s
                yield _Times(begin_s=begin_s, end_s=begin_s + fault.for_s)
            else:
                yield _Times(first_round=first, end_round=end)
        return
    assert when.at_s is not None
    at_s, number = when.at_s, 0
    while at_s < time.horizon_s and number <= _MOST:
        first = first_step(at_s, time) + 1
        if fault.for_rounds is not None and time.fixed:
            yield _Times(first_round=first, end_round=first + fault.for_rounds)
        else:
            lasts_s = None if injected and time.lockstep else fault.for_s
            yield _Times(begin_s=at_s, end_s=None if lasts_s is None else at_s + lasts_s)
        if when.every_s is None:
            return
        number += 1
        at_s = when.at_s + number * when.every_s


def _random_times(
    fault: ScheduledFault, seed: int, time: RunTime, targets: list[str]
) -> Iterator[tuple[_Times, list[str]]]:
    """Times of a fault that comes and goes, of each target by itself or of all together. Both the
    time without it and the time with it are exponential."""
    up_s, down_s = fault.when.mean_up_s, fault.when.mean_down_s
    assert up_s is not None
    assert down_s is not None
    together = [("all", targets)] if fault.when.together else [(t, [t]) for t in targets]
    number = 0
    for name, struck in together:
        draws = stream(seed, "fault", str(fault.name), "times", name)
        at_s = 0.0
        while True:
            begin_s = at_s + draws.exponential(up_s)
            at_s = begin_s + draws.exponential(down_s)
            if begin_s >= time.horizon_s:
                break
            number += 1
            if number > _MOST:
                raise ValueError(f"when: it comes and goes more than {_MOST:,} times")
            yield _Times(begin_s=begin_s, end_s=at_s), struck


def _in_rounds(times: _Times, time: RunTime) -> _Times | None:
    """The times in rounds and in seconds, if both are known; None if no round begins in them."""
    if not time.fixed:
        return times
    if times.first_round is not None:
        first, end = times.first_round, times.end_round
    else:
        assert times.begin_s is not None
        first = first_step(times.begin_s, time) + 1
        end = None if times.end_s is None else first_step(times.end_s, time) + 1
        if (end is not None and end <= first) or first > time.rounds:
            return None
    return _Times(
        first, end, (first - 1) * time.round_s, None if end is None else (end - 1) * time.round_s
    )


def first_step(seconds: float, time: RunTime) -> int:
    """The first step that does not begin before an instant."""
    return math.ceil(round(seconds / time.round_s, 9))


def step_at(seconds: float, time: RunTime) -> int:
    """The step that an instant is in."""
    return math.floor(round(seconds / time.round_s, 9))
