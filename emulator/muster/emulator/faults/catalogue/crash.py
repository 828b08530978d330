"""The fault `crash`."""

from typing import ClassVar

from muster.common.faults import Role
from muster.emulator.faults.catalogue.killing import EVERYTHING, KillingFault


class Crash(KillingFault):
    """The program is killed (SIGKILL) and stays dead until the fault is healed; then it is started
    again. Devices of a pack share a process, and packs may share a container, so they die
    together. In lockstep the rounds wait for it, and the model is that of a run without the
    fault."""

    roles: ClassVar[frozenset[Role]] = EVERYTHING
