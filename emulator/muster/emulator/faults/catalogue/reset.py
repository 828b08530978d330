"""The fault `reset`."""

from collections.abc import Sequence
from typing import ClassVar

from muster.emulator.faults.catalogue.link_fault import ConnectionFault
from muster.emulator.faults.injection import FaultSite
from muster.emulator.gateway.faults import Fault


class Reset(ConnectionFault):
    """All connections of the link are reset (TCP RST) once, in the middle of whatever they carry.
    New ones work."""

    lasts: ClassVar[bool] = False
    needs_end: ClassVar[bool] = False

    async def apply(self, site: FaultSite, targets: Sequence[str]) -> None:
        await site.links.strike(targets, Fault(fault="reset"))

    async def heal(self, site: FaultSite, targets: Sequence[str]) -> None:
        pass
