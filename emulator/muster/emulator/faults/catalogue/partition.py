"""The fault `partition`."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from muster.emulator.faults.catalogue.link_fault import LinkFault
from muster.emulator.gateway.faults import FaultName
from muster.emulator.gateway.rates import Direction


class NetworkPartition(LinkFault):
    """The network is cut between the targets and the server, without a word to either: what is sent
    is thrown away. With `way` "up" or "down", only in that direction: then an update may arrive
    whose receipt is lost, so that the device sends it again."""

    fault: ClassVar[FaultName] = "cut"

    way: Literal["both", "up", "down"] = "both"
    """The direction that is cut: up is from the devices to the server."""

    def directions(self) -> Sequence[Direction | None]:
        return ["up", "down"] if self.way == "both" else [self.way]
