"""The fault `degrade`."""

from typing import Annotated, ClassVar

from pydantic import Field

from muster.common.requirements import Requirement
from muster.emulator.faults.catalogue.shape_fault import ShapeFault
from muster.emulator.faults.link_changes import LinkChange
from muster.emulator.faults.link_measures import LinkMeasures, way_of
from muster.emulator.gateway.rates import rate_of
from muster.emulator.links.shape import Shape


class Degrade(ShapeFault):
    """The rates of the device's own link, up and down, are multiplied by a factor. Factors of
    faults that overlap multiply. In lockstep real transfers take longer, but not their modelled
    durations, so the model does not change."""

    requires: ClassVar[frozenset[Requirement]] = frozenset({Requirement.GATEWAY, Requirement.RATES})

    factor: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Factor of the rates."""

    def change(self) -> LinkChange:
        return LinkChange(rate_factor=self.factor)

    def measured(self, link: LinkMeasures) -> float | None:
        return link.bps

    def expected(self, shape: Shape) -> float:
        # The mean of a rate that varies does not depend on the seed and the client.
        return 8 * rate_of(shape, way_of(shape), 0, "").mean

    def told(self, value: float, link: LinkMeasures) -> str:
        return f"{value / 1e6:.3g} Mbit/s"
