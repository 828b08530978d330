"""The fault `loss`."""

from typing import Annotated

from pydantic import Field

from muster.emulator.faults.catalogue.shape_fault import ShapeFault
from muster.emulator.faults.link_changes import LinkChange
from muster.emulator.faults.link_measures import LinkMeasures
from muster.emulator.gateway.loss import loss_of
from muster.emulator.links.shape import Shape


class PacketLoss(ShapeFault):
    """A share of the packets is lost. A gateway relays TCP and cannot drop a packet, so it emulates
    what loss does to a TCP connection (`muster.emulator.gateway.loss`): a bound of the rate, and
    stalls of one retransmission time-out. Losses of faults that overlap are independent; the
    gateway emulates a share of at most a half."""

    loss: Annotated[float, Field(ge=1e-4, le=0.5)] = 0.05
    """Share of the packets that are lost."""

    def change(self) -> LinkChange:
        return LinkChange(loss=self.loss)

    def measured(self, link: LinkMeasures) -> float | None:
        return link.stalls_a_packet

    def expected(self, shape: Shape) -> float:
        loss = loss_of(shape, "up")
        return loss.stall_ratio if loss is not None else 0.0

    def told(self, value: float, link: LinkMeasures) -> str:
        # A ratio would look like an estimate of the loss, but the first stall among few packets is
        # enough to observe the fault.
        return f"stalls after {link.stalls} of {link.packets:.0f} packets"
