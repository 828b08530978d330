"""The fault `flap`."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from muster.emulator.faults.catalogue.link_fault import ConnectionFault
from muster.emulator.faults.injection import FaultSite
from muster.emulator.faults.link_changes import LinkChange
from muster.emulator.gateway.faults import Fault


class Flap(ConnectionFault):
    """The link goes down and up again, over and over; it begins with down. All targets behind the
    same gateway flap together. Of faults that overlap the one counts that is down for the largest
    part of the time."""

    down_s: Annotated[float, Field(ge=0.01, le=1e6)] = 1.0
    """Wall seconds for which it is down each time."""

    up_s: Annotated[float, Field(ge=0.01, le=1e6)] = 5.0
    """Wall seconds for which it is up each time."""

    silent: bool = False
    """Whether nobody is told while it is down, as with `blackhole`; otherwise connections are
    closed and refused, as with `disconnect`."""

    def change(self) -> LinkChange:
        fault = Fault(fault="flap", down_s=self.down_s, up_s=self.up_s, silent=self.silent)
        return LinkChange(faults=(fault,))

    async def verify(self, site: FaultSite, targets: Sequence[str], since: int) -> Sequence[str]:
        return await self.passing(site, targets)
