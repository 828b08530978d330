"""Many histories at a time, in a process of their own."""

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from typing import NamedTuple

from muster.emulator.simulation.search import HistoryPlan, Simulator, simulator


class Batch(NamedTuple):
    """What a process has found.

    Attributes:
        endings: how often runs ended how: "completed", or "failed first".
        violations: plans with the first of what they violate.
    """

    played: int
    endings: Counter[str]
    violations: list[tuple[HistoryPlan, str]]


def _play(plans: Callable[[Simulator], Iterable[HistoryPlan]]) -> Batch:
    with simulator() as found:
        played, endings, violations = 0, Counter[str](), []
        for plan in plans(found):
            outcome = found.play(plan)
            played += 1
            endings["failed first" if outcome.failures else outcome.status or "stuck"] += 1
            if outcome.violations:
                violations.append((found.shortest(plan), outcome.violations[0]))
        return Batch(played, endings, violations)


def random_batch(seeds: tuple[int, int]) -> Batch:
    return _play(lambda found: map(found.random_plan, range(*seeds)))


def exhaustive_batch(part: tuple[str, bool, int, int]) -> Batch:
    scenario, pairs, start, stop = part
    return _play(lambda found: islice(found.every_plan(scenario, pairs), start, stop))
