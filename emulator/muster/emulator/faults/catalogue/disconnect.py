"""The fault `disconnect`."""

from muster.emulator.faults.catalogue.link_fault import ConnectionFault
from muster.emulator.faults.link_changes import LinkChange
from muster.emulator.gateway.faults import Fault


class Disconnect(ConnectionFault):
    """The link is down and says so: connections are closed in order, and new ones are refused."""

    def change(self) -> LinkChange:
        return LinkChange(faults=(Fault(fault="offline"),))
