"""Absence that depends on how often a device has taken part before."""

from collections import Counter

import numpy as np

from muster.laboratory.worst_case.families.contract import Family, Keys, by_round
from muster.laboratory.worst_case.schedule import Cell, FaultlessRun, FaultSchedule, schedule


class Participation(Family):
    """Keys: the first and the last round in which devices are away; the share of a round's devices
    that are; and whether those are away that have taken part least (0) or most (1), or that took
    part last time (the last key)."""

    def size(self, course: FaultlessRun) -> int:
        return 5

    def schedule(self, course: FaultlessRun, keys: Keys) -> FaultSchedule:
        first, last = sorted(1 + round(float(key) * (course.rounds - 1)) for key in keys[:2])
        taken, before = Counter[str](), frozenset[str]()
        chosen: list[Cell] = []
        for number, cells in by_round(course.cells).items():
            scores = [
                (2 * keys[3] - 1) * taken[client] / number + (2 * keys[4] - 1) * (client in before)
                for _, client in cells
            ]
            wanted = round(float(keys[2]) * len(cells)) if first <= number <= last else 0
            order = np.argsort(-np.array(scores), kind="stable")
            away = [cells[place] for place in order[: min(wanted, course.limit - len(chosen))]]
            chosen += away
            before = frozenset(client for _, client in cells) - {client for _, client in away}
            taken.update(before)
        return schedule(chosen)
