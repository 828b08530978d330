"""The fault `blackhole`."""

from muster.emulator.faults.catalogue.link_fault import ConnectionFault
from muster.emulator.faults.link_changes import LinkChange
from muster.emulator.gateway.faults import Fault


class Blackhole(ConnectionFault):
    """Nothing passes the link in either direction, and nobody is told: connections stay open and
    silent, and new ones are accepted and silent too. When it is healed, these connections are
    reset, because bytes of them are lost."""

    def change(self) -> LinkChange:
        return LinkChange(faults=(Fault(fault="blackhole"),))
