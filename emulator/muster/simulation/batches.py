"""Plays batches of histories; a worker process runs these functions."""

import atexit
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import cache
from itertools import islice
from typing import NamedTuple

from muster.simulation.search import HistoryPlan, Simulator, Unsound, simulator


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


@cache
def _simulator() -> Simulator:
    """The simulator of this process. Its folder is removed when the process ends."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(simulator())


def _play(plans: Callable[[Simulator], Iterable[HistoryPlan]]) -> Batch:
    found, batch = _simulator(), Batch(0, Counter(), [])
    for plan in plans(found):
        outcome = found.play(plan)
        batch.endings["failed first" if outcome.failures else outcome.status or "stuck"] += 1
        if outcome.violations:
            batch.violations.append((found.shortest(plan), outcome.violations[0]))
    return batch._replace(played=batch.endings.total())


def random_batch(seeds: tuple[int, int]) -> Batch:
    """Play the seeds of one fleet, if its undisturbed run violates nothing."""
    try:
        return _play(lambda found: map(found.random_plan, range(*seeds)))
    except Unsound as error:
        plan = HistoryPlan(error.scenario, seeds[0], ())
        return Batch(0, Counter(unsound=1), [(plan, str(error))])


def exhaustive_batch(part: tuple[str, bool, int, int]) -> Batch:
    scenario, pairs, start, stop = part
    return _play(lambda found: islice(found.every_plan(scenario, pairs), start, stop))
