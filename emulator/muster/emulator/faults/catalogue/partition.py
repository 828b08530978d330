"""The fault `partition`."""

from typing import Literal

from muster.common.rates.recording import DIRECTIONS
from muster.emulator.faults.catalogue.link_fault import ConnectionFault
from muster.emulator.faults.link_changes import LinkChange
from muster.emulator.gateway.faults import Fault


class NetworkPartition(ConnectionFault):
    """The network is cut between the targets and the server, without a word to either: what is sent
    is thrown away. With `way` "up" or "down", only in that direction: then an update may arrive
    whose receipt is lost, so that the device sends it again."""

    way: Literal["both", "up", "down"] = "both"
    """The direction that is cut: up is from the devices to the server."""

    def change(self) -> LinkChange:
        ways = [way for way in DIRECTIONS if self.way in ("both", way)]
        return LinkChange(faults=tuple(Fault(fault="cut", direction=way) for way in ways))
