"""The fault `unplug`."""

from collections.abc import Iterator

from muster.client.faults.contract import LifeEffect, LifeFault, without_battery
from muster.common.faults import FaultConditions, LedgerTrace


class Unplug(LifeFault):
    """Nothing charges the device, whatever its habits say, as in a power cut. Needs a device with a
    battery (a phone or a tablet)."""

    def refusals(self, conditions: FaultConditions) -> Iterator[str]:
        return without_battery(self.kind, conditions)

    def effect(self) -> LifeEffect:
        return LifeEffect(unplugged=True)

    def observed(self, trace: LedgerTrace) -> bool:
        """The device reported that it was not charging, or declined for that reason."""
        return trace.reason == "not charging" or trace.state.get("charging") is False
