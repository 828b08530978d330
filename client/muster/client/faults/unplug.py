"""The fault `unplug`."""

from typing import ClassVar

from muster.client.faults.contract import LifeEffect, LifeFault
from muster.common.faults import LedgerTrace
from muster.common.requirements import Requirement


class Unplug(LifeFault):
    """Nothing charges the device, whatever its habits say, as in a power cut. Needs a device with a
    battery (a phone or a tablet)."""

    requires: ClassVar[frozenset[Requirement]] = frozenset({Requirement.BATTERY})

    def effect(self) -> LifeEffect:
        return LifeEffect(unplugged=True)

    def observed(self, trace: LedgerTrace) -> bool:
        """The device reported that it was not charging, or declined for that reason."""
        return trace.reason == "not charging" or trace.state.get("charging") is False
