"""All devices of a class of the data are away."""

from collections.abc import Mapping, Sequence

from muster.laboratory.worst_case.families.contract import SetsAway
from muster.laboratory.worst_case.schedule import Divisions, FaultlessRun


class Classes(SetsAway):
    """A set has the devices with more examples of a label than of any other."""

    def refusal(self, divisions: Divisions) -> str | None:
        if len(divisions.classes) > 1:
            return None
        return (
            f"expected a task of classification whose devices differ in their most frequent "
            f"label, found {len(divisions.classes)} such labels; name another family"
        )

    def sets(self, course: FaultlessRun) -> Mapping[str, Sequence[str]]:
        return course.classes
