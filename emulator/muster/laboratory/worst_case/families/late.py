"""Updates come late, in modes in which they may count in a later round."""

from muster.laboratory.worst_case.families.contract import Family, Keys
from muster.laboratory.worst_case.families.independent import preferred
from muster.laboratory.worst_case.schedule import Divisions, FaultlessRun, FaultSchedule, schedule

_MOST = 8
"""The most rounds by which an update is late."""


class LateUpdates(Family):
    """As `independent`, but the updates come late by the same number of rounds: the last key. A
    device is not called while it works; calls that are lost so are charged to the budget."""

    def refusal(self, divisions: Divisions) -> str | None:
        if divisions.outlives_round:
            return None
        return (
            "expected a mode in which an update may count in a later round, such as buffered; name "
            "another family"
        )

    def size(self, course: FaultlessRun) -> int:
        return len(course.clients) + course.rounds + 1

    def schedule(self, course: FaultlessRun, keys: Keys) -> FaultSchedule:
        most = max(1, min(_MOST, course.limit - 1))  # one late update and the calls that it costs
        delay = 1 + round(float(keys[-1]) * (most - 1))
        number = course.limit // (1 + delay)
        return schedule(preferred(course, keys[:-1], number), delay)
