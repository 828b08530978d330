"""The fault `jitter`."""

from typing import Annotated

from pydantic import Field

from muster.common.units import Duration
from muster.emulator.faults.catalogue.shape_fault import ShapeFault
from muster.emulator.faults.link_changes import LinkChange
from muster.emulator.faults.link_measures import LinkMeasures
from muster.emulator.links.shape import Shape

_UPPER_QUARTILE = 0.674
"""Upper quartile of max(0, Z) for a standard normal Z, which is the jitter of a gateway in units of
σ."""


class Jitter(ShapeFault):
    """The delays of the device's own link vary more: `jitter` is the standard deviation of a
    further normal random number in each direction, of which only the positive part delays. Bytes
    never overtake each other. Variances of faults that overlap add up."""

    jitter: Annotated[Duration, Field(ge=0.001, le=30)] = 0.05
    """Standard deviation of the random number that is added in each direction."""

    def change(self) -> LinkChange:
        return LinkChange(jitter_s=self.jitter)

    def measured(self, link: LinkMeasures) -> float | None:
        return link.excess_s

    def expected(self, shape: Shape) -> float:
        return _UPPER_QUARTILE * shape.jitter_s

    def told(self, value: float, link: LinkMeasures) -> str:
        return f"an upper quartile of delays {1000 * value:.0f} ms above the least"
