"""The fault `limit-bytes`."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from muster.common.rates.recording import DIRECTIONS
from muster.emulator.faults.catalogue.link_fault import ConnectionFault
from muster.emulator.faults.injection import FaultSite
from muster.emulator.faults.link_changes import LinkChange
from muster.emulator.gateway.faults import Fault


class LimitBytes(ConnectionFault):
    """After a number of bytes in a direction the connection is reset, or the whole link falls
    silent. Connections that exist count from the beginning of the fault. Of faults that overlap the
    smallest number counts, and the count begins again when that changes."""

    bytes: Annotated[int, Field(ge=1, le=2**40)] = 100_000
    """Number of bytes that are delivered in each direction."""

    way: Literal["both", "up", "down"] = "both"
    """The direction that is limited: up is from the devices to the server."""

    then: Literal["reset", "silence"] = "reset"
    """With `reset`, every connection is reset after its own bytes, and a new one may begin. With
    `silence`, nothing passes the link any more after the bytes of all connections together, and
    nobody is told, as when a data plan is used up."""

    def change(self) -> LinkChange:
        ways = [way for way in DIRECTIONS if self.way in ("both", way)]
        if self.then == "reset":
            faults = [Fault(fault="limit", direction=way, bytes=self.bytes) for way in ways]
        else:
            faults = [Fault(fault="quota", direction=way, bytes=self.bytes) for way in ways]
        return LinkChange(faults=tuple(faults))

    async def observe(
        self, site: FaultSite, targets: Sequence[str], before: Mapping[str, float]
    ) -> Mapping[str, str]:
        found = await super().observe(site, targets, before)
        told = f"the gateway struck a connection after {self.bytes} bytes"
        return dict.fromkeys(found, told)

    async def verify(self, site: FaultSite, targets: Sequence[str], since: int) -> Sequence[str]:
        return await self.passing(site, targets)
