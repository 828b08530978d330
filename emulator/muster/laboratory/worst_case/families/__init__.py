"""The families of schedules, one file each."""

from typing import Final

from muster.laboratory.worst_case.families.classes import Classes
from muster.laboratory.worst_case.families.contract import Family
from muster.laboratory.worst_case.families.groups import Groups
from muster.laboratory.worst_case.families.independent import Independent
from muster.laboratory.worst_case.families.late import LateUpdates
from muster.laboratory.worst_case.families.outages import Outages
from muster.laboratory.worst_case.families.participation import Participation
from muster.laboratory.worst_case.schedule import Divisions

FAMILIES: Final[dict[str, Family]] = {
    "independent": Independent(),
    "groups": Groups(),
    "classes": Classes(),
    "outages": Outages(),
    "participation": Participation(),
    "late": LateUpdates(),
}
"""All families by name."""


def usual_family(divisions: Divisions) -> str:
    """The family that is searched if none is named: groups if the scenario has several."""
    return "outages" if FAMILIES["groups"].refusal(divisions) else "groups"


__all__ = ["FAMILIES", "Family", "usual_family"]
