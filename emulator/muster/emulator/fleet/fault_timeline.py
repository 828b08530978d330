"""The timeline of a run's faults: which targets each fault strikes, and when.

It is a pure function of the scenario, its population and its seed, so it is the same in processes,
containers and simulations.

In lockstep (except in the buffered mode) every round begins at a known scenario time, so each
occurrence has both rounds and seconds. A fault acts in the rounds that begin while it lasts. In the
other cases an occurrence has what the scenario gives it: rounds or seconds.
"""

from collections.abc import Sequence

from pydantic import Field

from muster.common.config import Section
from muster.common.errors import ConfigError
from muster.common.faults import TracedFault
from muster.common.seeds import stream
from muster.emulator.faults.registry import AnyFault
from muster.emulator.faults.settings import ScheduledFault
from muster.emulator.faults.times import RunTime, TooOften, times_of
from muster.emulator.scenario.fault_targets import GatewayGroup, targets_of
from muster.emulator.scenario.population import Resident

_MOST = 100_000
"""Most occurrences of all faults. A run could not show more of them."""

_MOST_STRIKES = 1_000_000
"""Most pairs of an occurrence and a target, of all faults. `faults.json` has a name for each."""


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
    found, occurs, strikes = list[TimelineFault](), _MOST, _MOST_STRIKES
    for fault in faults:
        assert fault.name is not None
        try:
            targets = targets_of(fault, seed, residents, gateways)
            size = _struck_each(fault, targets)
            occurrences = _occurrences(fault, seed, time, targets, min(occurs, strikes // size))
        except TooOften:
            raise ConfigError(
                f"faults.{fault.name}: expected at most {_MOST:,} occurrences of all faults, and "
                f"{_MOST_STRIKES:,} of occurrences times targets, found more; choose longer times "
                f"between them, or fewer targets"
            ) from None
        except ValueError as error:
            raise ConfigError(f"faults.{fault.name}: {error}") from None
        occurs, strikes = occurs - len(occurrences), strikes - size * len(occurrences)
        found.append(
            TimelineFault(name=fault.name, do=fault.do, targets=targets, occurrences=occurrences)
        )
    return FaultTimeline(faults=found)


def _struck_each(fault: ScheduledFault, targets: list[str]) -> int:
    """Number of targets that are struck each time."""
    if fault.when.mean_up_s is not None and not fault.when.together:
        return 1
    percent = fault.do.each_percent()
    return len(targets) if percent is None else max(1, round(len(targets) * percent / 100))


def _occurrences(
    fault: ScheduledFault, seed: int, time: RunTime, targets: list[str], most: int
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
    found: list[Occurrence] = []
    for each, struck in times_of(fault, seed, time, targets, most):
        known = each.in_rounds(time)
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
