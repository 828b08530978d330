"""The families of schedules, one file each."""

from typing import Final

from muster.laboratory.worst_case.families.classes import Classes
from muster.laboratory.worst_case.families.contract import Family
from muster.laboratory.worst_case.families.groups import Groups
from muster.laboratory.worst_case.families.independent import Independent
from muster.laboratory.worst_case.families.late import LateUpdates
from muster.laboratory.worst_case.families.outages import Outages
from muster.laboratory.worst_case.families.participation import Participation

FAMILIES: Final[dict[str, Family]] = {
    "independent": Independent(),
    "groups": Groups(),
    "classes": Classes(),
    "outages": Outages(),
    "participation": Participation(),
    "late": LateUpdates(),
}
"""All families by name."""

__all__ = ["FAMILIES", "Family"]
