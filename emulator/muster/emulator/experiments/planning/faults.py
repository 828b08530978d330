"""The faults of a plan as text: the timeline, and what each round misses."""

from collections.abc import Iterator

import numpy as np

from muster.emulator.experiments.planning.result import Plan
from muster.emulator.faults.timeline import TimelineFault
from muster.emulator.results.summary import seconds_text

_ROUNDS = 12


def fault_lines(plan: Plan) -> Iterator[tuple[str, str, str, str]]:
    """A row for every fault: its name, its kind, its targets, and when it acts."""
    for fault in plan.timeline.faults:
        yield fault.name, fault.do.kind, _targets(fault.targets), _times(fault)


def _targets(targets: list[str]) -> str:
    more = f" and {len(targets) - 3:,} more" if len(targets) > 3 else ""
    return ", ".join(targets[:3]) + more


def _times(fault: TimelineFault) -> str:
    if not fault.occurrences:
        return "never: it occurs by chance, and does not before the last round"
    first = fault.occurrences[0]
    if first.event is not None:
        where = "" if first.first_round is None else f" of round {first.first_round}"
        begins = f"at the event {first.event}{where}"
    elif first.first_round is not None:
        begins = f"round {first.first_round}"
    else:
        begins = f"from {seconds_text(first.begin_s or 0.0)}"
    if first.end_round is not None and first.first_round is not None:
        last = first.end_round - 1
        lasts = "" if last == first.first_round else f" to {last}"
    elif first.lasts_s is not None:
        lasts = f" for {seconds_text(first.lasts_s)}"
    elif first.end_s is not None:
        lasts = f" to {seconds_text(first.end_s)}"
    else:
        lasts = "" if not fault.do.lasts else " to the end"
    more = len(fault.occurrences) - 1
    again = f", and {more:,} {'time' if more == 1 else 'times'} later" if more else ""
    return f"{begins}{lasts}{again}"


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
