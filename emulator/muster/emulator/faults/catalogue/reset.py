"""The fault `reset`."""

from typing import ClassVar

from muster.emulator.faults.catalogue.link_fault import LinkFault
from muster.emulator.gateway.faults import FaultName


class Reset(LinkFault):
    """All connections of the link are reset (TCP RST) once, in the middle of whatever they carry.
    New ones work."""

    lasts: ClassVar[bool] = False
    needs_end: ClassVar[bool] = False
    fault: ClassVar[FaultName] = "reset"
