"""The fault `offline`."""

from muster.client.faults.contract import LifeEffect, LifeFault
from muster.common.faults import LedgerTrace


class Offline(LifeFault):
    """The device cannot be reached. In lockstep it declines every call with the reason `offline`;
    on the other clocks a device with a process of its own also closes its connection. If the target
    is a whole group, this is the outage of the group."""

    def effect(self) -> LifeEffect:
        return LifeEffect(offline=True)

    def observed(self, trace: LedgerTrace) -> bool:
        """The device declined as offline, or was not connected when the round opened."""
        return trace.reason == "offline" or trace.decision == "absent"
