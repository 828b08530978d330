"""The fault `delay`."""

from typing import Annotated

from pydantic import Field

from muster.common.units import Duration
from muster.emulator.faults.catalogue.shape_fault import ShapeFault
from muster.emulator.faults.link_changes import LinkChange
from muster.emulator.faults.link_measures import LinkMeasures
from muster.emulator.links.shape import Shape


class AddedDelay(ShapeFault):
    """The round trips of the device's own link are longer by `rtt`, half of it in each direction.
    Delays of faults that overlap add up. In lockstep real transfers take longer, but not their
    modelled durations, so the model does not change."""

    rtt: Annotated[Duration, Field(gt=0, le=30)] = 0.2
    """Round-trip time that is added."""

    def change(self) -> LinkChange:
        return LinkChange(rtt_s=self.rtt)

    def measured(self, link: LinkMeasures) -> float | None:
        return link.round_trip_s

    def expected(self, shape: Shape) -> float:
        return shape.rtt_s

    def told(self, value: float, link: LinkMeasures) -> str:
        return f"a round trip of {1000 * value:.0f} ms"
