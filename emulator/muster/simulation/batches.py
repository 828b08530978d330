"""Plays batches of histories; a worker process runs these functions."""

import asyncio
import atexit
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import cache
from itertools import islice
from typing import NamedTuple

from muster.common.errors import ConfigError
from muster.simulation.history import HistoryOutcome
from muster.simulation.search import HistoryPlan, Simulator, Unsound, simulator

_TWICE = 20
"""One in so many random histories is played twice."""


class Batch(NamedTuple):
    """The results of a batch of histories.

    Attributes:
        played: number of histories.
        endings: counts of how runs ended, for example "completed" or "failed first".
        violations: pairs of a plan and the first violation in it.
        reached: in how many histories each probe was reached.
    """

    played: int
    endings: Counter[str]
    violations: list[tuple[HistoryPlan, str]]
    reached: Counter[str]


@cache
def _simulator() -> Simulator:
    """The simulator of this process. Its folder is removed when the process ends."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(simulator())


def _play(plans: Callable[[Simulator], Iterable[HistoryPlan]], twice: int = 0) -> Batch:
    """Play plans, and those twice whose seed is a multiple of `twice`."""
    found, batch = _simulator(), Batch(0, Counter(), [], Counter())
    for plan in plans(found):
        try:
            outcome = _played(found, plan, twice > 0 and plan.seed % twice == 0)
        except (Exception, asyncio.CancelledError) as error:
            where = "".join(traceback.format_exception(error))
            batch.violations.append((plan, f"the simulation failed: {where}"))
            batch.endings["crashed"] += 1
            continue
        batch.reached.update(outcome.reached)
        batch.endings["failed first" if outcome.failures else outcome.status or "stuck"] += 1
        if outcome.violations:
            batch.violations.append((found.shortest(plan), outcome.violations[0]))
    return batch._replace(played=batch.endings.total())


def _played(found: Simulator, plan: HistoryPlan, twice: bool) -> HistoryOutcome:
    """The outcome of a plan; if it is played twice, it must take the same course."""
    outcome = found.play(plan, traced=twice)
    if twice and found.play(plan, traced=True).trace != outcome.trace:
        outcome.violations.append("it took another course when it was played again")
    return outcome


def random_batch(seeds: tuple[int, int]) -> Batch:
    """Play the seeds of one fleet, if its undisturbed run violates nothing."""
    try:
        return _play(lambda found: map(found.random_plan, range(*seeds)), _TWICE)
    except ConfigError:  # the fleet is refused by what only a start knows, as slow links
        return Batch(0, Counter(refused=1), [], Counter())
    except Unsound as error:
        plan = HistoryPlan(error.scenario, seeds[0], ())
        return Batch(0, Counter(unsound=1), [(plan, str(error))], Counter())


def exhaustive_batch(part: tuple[str, bool, int, int]) -> Batch:
    scenario, pairs, start, stop = part
    return _play(lambda found: islice(found.every_plan(scenario, pairs), start, stop))
