"""Single devices are away in single rounds."""

import numpy as np

from muster.laboratory.worst_case.families.contract import Family, Keys
from muster.laboratory.worst_case.schedule import FaultlessRun, FaultSchedule, schedule


class Independent(Family):
    """A key for each device and each round says how much it is preferred; the calls with the
    largest sums are struck. Half of a key's weight is a hash of both, so that calls of the same
    device do not all go together."""

    def size(self, course: FaultlessRun) -> int:
        return len(course.clients) + course.rounds

    def schedule(self, course: FaultlessRun, keys: Keys) -> FaultSchedule:
        return schedule(preferred(course, keys, course.limit))


def preferred(course: FaultlessRun, keys: Keys, number: int) -> list[tuple[int, str]]:
    """So many calls with the largest sums of keys."""
    places = {client: place for place, client in enumerate(course.clients)}
    clients = np.array([places[client] for _, client in course.cells])
    rounds = np.array([number for number, _ in course.cells])
    noise = np.modf((clients + 1) * 0.6180339887 + rounds * 0.7548776662)[0]
    sums = keys[clients] + keys[len(places) + rounds - 1] + 0.5 * noise
    return [course.cells[place] for place in np.argsort(-sums, kind="stable")[:number]]
