"""Whole groups are away."""

from collections.abc import Mapping, Sequence

from muster.laboratory.worst_case.families.contract import SetsAway
from muster.laboratory.worst_case.schedule import Divisions, FaultlessRun


class Groups(SetsAway):
    """A set is a group of the scenario."""

    def refusal(self, divisions: Divisions) -> str | None:
        if len(divisions.groups) > 1:
            return None
        return "expected a scenario with at least two groups, found one; name another family"

    def sets(self, course: FaultlessRun) -> Mapping[str, Sequence[str]]:
        return course.groups
