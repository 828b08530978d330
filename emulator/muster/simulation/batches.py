"""Plays batches of histories; a worker process runs these functions."""

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from typing import NamedTuple

from muster.simulation.search import HistoryPlan, Simulator, simulator


class Batch(NamedTuple):
    """The results of a batch of histories.

    Attributes:
        played: number of histories.
        endings: counts of how runs ended, for example "completed" or "failed first".
        violations: pairs of a plan and the first violation in it.
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
