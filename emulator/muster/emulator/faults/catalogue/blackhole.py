"""The fault `blackhole`."""

from typing import ClassVar

from muster.emulator.faults.catalogue.link_fault import LinkFault
from muster.emulator.gateway.faults import FaultName


class Blackhole(LinkFault):
    """Nothing passes the link in either direction, and nobody is told: connections stay open and
    silent, and new ones are accepted and silent too. When it is healed, these connections are
    reset, because bytes of them are lost."""

    fault: ClassVar[FaultName] = "blackhole"
