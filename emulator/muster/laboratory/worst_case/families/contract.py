"""What a family of schedules is: it makes a schedule of a vector of keys, so that any search over
vectors finds schedules of the family."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from muster.laboratory.worst_case.schedule import (
    Cell,
    Divisions,
    FaultlessRun,
    FaultSchedule,
    schedule,
)

Keys = npt.NDArray[np.float64]
"""Numbers from 0 to 1."""


class Family:
    """A family of schedules. Every schedule keeps within `course.limit`."""

    def refusal(self, divisions: Divisions) -> str | None:
        """Why the family has no schedule for a scenario, a sentence; None: it has some. It is asked
        before anything is played."""
        return None

    def size(self, course: FaultlessRun) -> int:
        """The number of keys, at least 2."""
        raise NotImplementedError

    def schedule(self, course: FaultlessRun, keys: Keys) -> FaultSchedule:
        """The schedule of a vector of keys."""
        raise NotImplementedError

    def simple(self, course: FaultlessRun) -> Iterator[Keys]:
        """Yield keys of simple schedules, with which the search begins."""
        yield from ()


class SetsAway(Family):
    """Each of some sets of devices is away in one interval of rounds, in the order of their first
    keys, as long as the budget lasts. The other keys are the end and the length of the interval."""

    def sets(self, course: FaultlessRun) -> Mapping[str, Sequence[str]]:
        """The sets of devices."""
        raise NotImplementedError

    def size(self, course: FaultlessRun) -> int:
        return 3 * len(self.sets(course))

    def schedule(self, course: FaultlessRun, keys: Keys) -> FaultSchedule:
        of_round = by_round(course.cells)
        chosen = set[Cell]()
        first, ends, lengths = keys.reshape(3, -1)
        sets = list(self.sets(course).values())
        for place in np.argsort(-first, kind="stable"):
            last = 1 + round(float(ends[place]) * (course.rounds - 1))
            length = max(1, round(float(lengths[place]) * course.rounds))
            members = frozenset(sets[place])
            for number in range(last, max(0, last - length), -1):
                new = {cell for cell in of_round.get(number, ()) if cell[1] in members} - chosen
                if len(chosen) + len(new) > course.limit:
                    break
                chosen |= new
        return schedule(frozenset(chosen))

    def simple(self, course: FaultlessRun) -> Iterator[Keys]:
        sets = len(self.sets(course))
        for place in range(sets):
            for end in (1.0, 0.5):
                keys = np.zeros((3, sets))
                keys[:, place] = (1.0, end, 1.0)
                yield keys.ravel()


def by_round(cells: Iterable[Cell]) -> dict[int, list[Cell]]:
    """Cells by their round."""
    found: dict[int, list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell[0], []).append(cell)
    return found
