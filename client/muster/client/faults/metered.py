"""The fault `metered`."""

from muster.client.faults.contract import LifeEffect, LifeFault
from muster.common.faults import LedgerTrace


class Metered(LifeFault):
    """Traffic of the device costs money, whatever its network is. Devices whose
    `participation.require` has "unmetered" decline."""

    def effect(self) -> LifeEffect:
        return LifeEffect(metered=True)

    def observed(self, trace: LedgerTrace) -> bool:
        """The device reported a metered network, or declined for that reason."""
        return trace.reason == "metered" or trace.state.get("unmetered") is False
