"""The fault `degrade`."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from muster.common.faults import FaultConditions
from muster.emulator.faults.catalogue.shape_fault import ShapeFault
from muster.emulator.faults.link_changes import LinkChange
from muster.emulator.faults.link_measures import LinkMeasures, way_of
from muster.emulator.gateway.rates import rate_of
from muster.emulator.links.shape import Shape


class Degrade(ShapeFault):
    """The rates of the device's own link, up and down, are multiplied by a factor. Factors of
    faults that overlap multiply. In lockstep real transfers take longer, but not their modelled
    durations, so the model does not change."""

    factor: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Factor of the rates."""

    def refusals(self, conditions: FaultConditions) -> Iterator[str]:
        yield from super().refusals(conditions)
        for group in conditions.groups:
            if group.gateway and not group.rates:
                yield (
                    f"degrade multiplies the rates of links, but those of group {group.name!r} "
                    f"have no rates; set link.up and link.down, or link.profile"
                )

    def change(self) -> LinkChange:
        return LinkChange(rate_factor=self.factor)

    def measured(self, link: LinkMeasures) -> float | None:
        return link.bps

    def expected(self, shape: Shape) -> float:
        # The mean of a rate that varies does not depend on the seed and the client.
        return 8 * rate_of(shape, way_of(shape), 0, "").mean

    def told(self, value: float, link: LinkMeasures) -> str:
        return f"{value / 1e6:.3g} Mbit/s"
