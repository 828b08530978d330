"""Makes a schedule shorter to read, as long as most of its harm remains."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from muster.laboratory.worst_case.schedule import Cell, FaultlessRun, FaultSchedule, schedule
from muster.laboratory.worst_case.search import Harms

KEPT = 0.9
"""The part of the harm that must remain."""


class Shrunk(NamedTuple):
    """A schedule, its harm, and the largest harm of a schedule that was met on the way."""

    schedule: FaultSchedule
    harm: float
    largest: float


def shrunk(course: FaultlessRun, found: FaultSchedule, harm: float, harms: Harms) -> Shrunk:
    """A simpler schedule and its harm, and the harm of the worst schedule that was met.

    It first tries that one set of devices is away in one interval, then leaves out devices and
    rounds, by halves, quarters and so on. If it meets a schedule that is so much worse that too
    little of its harm remains, it begins again with that one.
    """
    worst = Shrunk(found, harm, harm)

    def noted(schedules: Sequence[FaultSchedule]) -> list[float]:
        nonlocal worst
        values = harms(schedules)
        for each, value in zip(schedules, values, strict=True):
            if value > worst.harm:
                worst = Shrunk(each, value, value)
        return values

    while worst.harm > 0:
        found, harm = _shorter(course, worst.schedule, worst.harm, noted)
        if harm >= KEPT * worst.harm:
            return Shrunk(found, harm, worst.harm)
    return worst


def _shorter(
    course: FaultlessRun, found: FaultSchedule, harm: float, harms: Harms
) -> tuple[FaultSchedule, float]:
    least = KEPT * harm
    tried = list(_rectangles(course, found))
    for each, value in zip(tried, harms(tried) if tried else [], strict=True):
        if value >= least:
            found, harm = each, value
            break
    for axis in (1, 0):
        found, harm = _with_fewer(found, harm, axis, least, harms)
    return found, harm


def _rectangles(course: FaultlessRun, found: FaultSchedule) -> Iterator[FaultSchedule]:
    """Yield schedules in which one group or class is away in one interval, those first which have
    most in common with the schedule that was found."""
    if found.delay:
        return
    there = frozenset(found.cells)
    choices = []
    for members in map(frozenset, (*course.groups.values(), *course.classes.values())):
        rounds = [number for number, client in found.cells if client in members]
        if not rounds:
            continue
        cells = {
            cell
            for cell in course.cells
            if cell[1] in members and min(rounds) <= cell[0] <= max(rounds)
        }
        for last in (True, False):
            kept = frozenset(_within(course.limit, cells, last))
            choices.append((len(kept & there), schedule(kept)))
    choices.sort(key=lambda choice: -choice[0])
    yield from dict.fromkeys(each for _, each in choices[:4] if each != found)


def _within(limit: int, cells: Iterable[Cell], last: bool) -> list[Cell]:
    """Whole rounds of the cells, the last or the first ones, as many as the limit allows."""
    kept: list[Cell] = []
    ordered = sorted(cells, reverse=last)
    for number in dict.fromkeys(number for number, _ in ordered):
        of_round = [cell for cell in ordered if cell[0] == number]
        if len(kept) + len(of_round) > limit:
            break
        kept += of_round
    return kept


def _with_fewer(
    found: FaultSchedule, harm: float, axis: int, least: float, harms: Harms
) -> tuple[FaultSchedule, float]:
    """Leave out rounds (axis 0) or devices (axis 1), the ends first, or those with fewest cells."""
    part = 2
    while part <= 16:
        count = dict.fromkeys((cell[axis] for cell in found.cells), 0)
        for cell in found.cells:
            count[cell[axis]] += 1
        names = sorted(count, key=lambda name: (count[name], name) if axis else name)
        number = len(names) // part
        if not number:
            break
        choices = [frozenset(names[:number])]
        if not axis:
            choices.append(frozenset(names[-number:]))
        smaller = [
            found._replace(cells=tuple(cell for cell in found.cells if cell[axis] not in gone))
            for gone in choices
        ]
        values = harms(smaller)
        best = max(range(len(smaller)), key=lambda place: values[place])
        if values[best] >= least:
            found, harm = smaller[best], values[best]
        else:
            part *= 2
    return found, harm
