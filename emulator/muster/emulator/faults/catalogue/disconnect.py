"""The fault `disconnect`."""

from typing import ClassVar

from muster.emulator.faults.catalogue.link_fault import LinkFault
from muster.emulator.gateway.faults import FaultName


class Disconnect(LinkFault):
    """The link is down and says so: connections are closed in order, and new ones are refused."""

    fault: ClassVar[FaultName] = "offline"
