"""Searches the schedule of a family that harms most, by CMA-ES over its keys (Hansen, The CMA
Evolution Strategy: A Tutorial, arXiv 1604.00772), after simple and random schedules."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from muster.common import seeds
from muster.laboratory.worst_case.families import Family
from muster.laboratory.worst_case.schedule import FaultlessRun, FaultSchedule, schedule

Harms = Callable[[Sequence[FaultSchedule]], list[float]]
"""The harm of each schedule."""

_RANDOM = 0.25
"""The part of the runs that plays random schedules, the baseline."""

_LARGEST = 1e300
"""Stands for an infinite harm, because CMA-ES compares finite numbers."""


class Found(NamedTuple):
    """The result of a search.

    Attributes:
        random: harms of the random schedules.
        of_family: the largest harm of a schedule of the family. The worst one may be a random one.
    """

    worst: FaultSchedule
    harm: float
    random: Sequence[float]
    of_family: float


def random_schedules(course: FaultlessRun, number: int, seed: int) -> list[FaultSchedule]:
    """Schedules that strike all that the budget allows; any calls have the same chance."""
    draws = seeds.stream(seed, "worst", "random")
    places = [draws.choice(len(course.cells), course.limit, replace=False) for _ in range(number)]
    return [schedule([course.cells[place] for place in each]) for each in places]


def search(course: FaultlessRun, family: Family, harms: Harms, runs: int, seed: int) -> Found:
    """Search with at most so many runs; a schedule that comes again is counted again."""
    from cmaes import CMA

    baseline = random_schedules(course, max(2, round(runs * _RANDOM)), seed)
    random = harms(baseline)
    harm, worst = max(zip(random, baseline, strict=True), key=lambda pair: pair[0])
    left, of_family = runs - len(random), -math.inf

    def play(schedules: Sequence[FaultSchedule]) -> list[float]:
        nonlocal harm, worst, left, of_family
        found = harms(schedules)
        left -= len(schedules)
        of_family = max([of_family, *found])
        for value, each in zip(found, schedules, strict=True):
            if value > harm:
                harm, worst = value, each
        return found

    size = family.size(course)
    simple = list(itertools.islice(family.simple(course), left // 2))
    first = play([family.schedule(course, keys) for keys in simple])
    mean = np.full(size, 0.5)
    if simple:
        mean = 0.1 + 0.8 * simple[int(np.argmax(first))]
    bounds = np.tile((0.0, 1.0), (size, 1))
    number = int(seeds.stream(seed, "worst", "search").integers(2**32))
    optimizer = CMA(mean=mean, sigma=0.3, bounds=bounds, seed=number)
    while left >= optimizer.population_size:
        keys = [optimizer.ask() for _ in range(optimizer.population_size)]
        found = play([family.schedule(course, each) for each in keys])
        losses = [-min(value, _LARGEST) for value in found]
        optimizer.tell(list(zip(keys, losses, strict=True)))
    return Found(worst, harm, random, of_family)
