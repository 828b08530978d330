"""The faults of a plan as text: the timeline, and what each round misses."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from muster.emulator.fleet.fault_timeline import Occurrence, TimelineFault
from muster.emulator.planning.result import Plan
from muster.emulator.records.summary import seconds_text

_ROUNDS = 12
_OCCURRENCES = 4
"""Most occurrences of a fault that comes and goes at random that are shown."""


def fault_lines(plan: Plan) -> Iterator[tuple[str, str, str, str]]:
    """A row for every fault: its name, its kind, its targets, and when it acts.

    If a fault occurs only once, the targets are those that it then strikes. Otherwise they are all
    that it may strike.
    """
    for fault in plan.timeline.faults:
        once = len(fault.occurrences) == 1
        targets = fault.occurrences[0].targets if once else fault.targets
        yield fault.name, fault.do.kind, _targets(targets), _times(fault)


def _targets(targets: list[str]) -> str:
    more = f" and {len(targets) - 3:,} more" if len(targets) > 3 else ""
    return ", ".join(targets[:3]) + more


def _times(fault: TimelineFault) -> str:
    """When a fault acts first, and how often again."""
    if not fault.occurrences:
        return "never: it occurs by chance, and does not before the last round"
    more = len(fault.occurrences) - 1
    again = f", and {more:,} {'time' if more == 1 else 'times'} later" if more else ""
    return _time(fault.occurrences[0], fault.do.lasts) + again


def occurrence_lines(plan: Plan) -> Iterator[str]:
    """The first occurrences of each fault whose occurrences do not follow from the first one."""
    for fault in plan.timeline.faults:
        occurrences = fault.occurrences
        if _is_periodic(occurrences):
            continue
        told = [
            f"{_time(each, fault.do.lasts)}: {_targets(each.targets)}"
            for each in occurrences[:_OCCURRENCES]
        ]
        if len(occurrences) > _OCCURRENCES:
            told.append(f"and {len(occurrences) - _OCCURRENCES:,} more")
        yield f"{fault.name} happens {len(occurrences):,} times: {'; '.join(told)}"


def _is_periodic(occurrences: Sequence[Occurrence]) -> bool:
    """Whether the occurrences have equal distances, lengths and targets."""
    if len(occurrences) < 2:
        return True
    begins = [each.first_round or each.begin_s or 0.0 for each in occurrences]
    distances = {round(after - before, 6) for before, after in pairwise(begins)}
    lengths = {
        (
            each.end_round is not None and each.end_round - (each.first_round or 0),
            each.end_s is not None and round(each.end_s - (each.begin_s or 0.0), 6),
            each.lasts_s,
        )
        for each in occurrences
    }
    same = all(each.targets == occurrences[0].targets for each in occurrences)
    return len(distances) <= 1 and len(lengths) == 1 and same


def _time(occurrence: Occurrence, lasts: bool) -> str:
    """When one occurrence begins and ends."""
    first = occurrence.first_round
    if occurrence.event is not None:
        where = "" if first is None else f" of round {first}"
        begins = f"at the event {occurrence.event}{where}"
    elif first is not None:
        begins = f"round {first}"
    else:
        begins = f"from {seconds_text(occurrence.begin_s or 0.0)}"
    if occurrence.end_round is not None and first is not None:
        last = occurrence.end_round - 1
        return begins if last == first else f"{begins} to {last}"
    if occurrence.lasts_s is not None:
        return f"{begins} for {seconds_text(occurrence.lasts_s)}"
    if occurrence.end_s is not None:
        return f"{begins} to {seconds_text(occurrence.end_s)}"
    return f"{begins} to the end" if lasts else begins


def missed_lines(plan: Plan) -> Iterator[str]:
    """What faults of device life cost each round: updates in time without and with them."""
    if plan.undisturbed is None:
        return
    usual = np.sum([group.in_time for group in plan.undisturbed.groups], axis=0)
    found = np.sum([group.in_time for group in plan.groups], axis=0)
    if len(usual) != len(found):  # in the buffered mode, rounds go on until there are versions
        yield f"Rounds, without and with faults: {len(usual):,} → {len(found):,}"
    usual, found = usual[: len(found)], found[: len(usual)]
    rounds = np.flatnonzero(np.asarray(usual != found))
    if not len(rounds):
        yield "No round misses an update because of them"
        return
    lost = float(np.sum(usual - found))
    yield f"Updates in time, without and with faults ({lost:,.0f} fewer in all)"
    for round in rounds[:_ROUNDS]:
        yield f"  round {round + 1:,}: {usual[round]:.0f} → {found[round]:.0f}"
    if len(rounds) > _ROUNDS:
        yield f"  … and {len(rounds) - _ROUNDS:,} more rounds"
