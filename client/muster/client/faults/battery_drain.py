"""The fault `battery-drain`."""

from typing import Annotated, ClassVar

from pydantic import Field

from muster.client.faults.contract import LifeEffect, LifeFault
from muster.common.faults import LedgerTrace
from muster.common.requirements import Requirement


class BatteryDrain(LifeFault):
    """The battery loses charge beside its usual drain, as if an app ran wild. Devices whose charge
    falls below `participation.battery_min` decline, and an empty device is off until it is charged
    again. Needs a device with a battery (a phone or a tablet)."""

    requires: ClassVar[frozenset[Requirement]] = frozenset({Requirement.BATTERY})

    share_per_h: Annotated[float, Field(gt=0, le=1e6)] = 0.5
    """Share of the full battery that is lost in an hour."""

    def effect(self) -> LifeEffect:
        return LifeEffect(drain_per_h=self.share_per_h)

    def observed(self, trace: LedgerTrace) -> bool:
        """The device declined or gave up because of its charge."""
        return trace.reason in ("battery", "powered off")
