"""The fault `restart`."""

from typing import ClassVar

from muster.common.faults import Role
from muster.emulator.faults.catalogue.killing import EVERYTHING, KillingFault


class Restart(KillingFault):
    """The program is killed and started again at once."""

    roles: ClassVar[frozenset[Role]] = EVERYTHING
    lasts: ClassVar[bool] = False
    needs_end: ClassVar[bool] = False
