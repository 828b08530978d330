"""The fault `degrade`."""

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from muster.common.rates.recording import DIRECTIONS, Direction
from muster.common.requirements import Requirement
from muster.emulator.faults.catalogue.shape_fault import ShapeFault
from muster.emulator.faults.link_changes import LinkChange
from muster.emulator.faults.link_measures import LinkMeasures
from muster.emulator.gateway.rates import rate_of
from muster.emulator.links.settings import LinkRate
from muster.emulator.links.shape import Shape

_NO_LIMIT = 1e12


class Degrade(ShapeFault):
    """The rates of the device's own link, also recorded ones, are multiplied by a factor, or at
    most an absolute rate. Factors of faults that overlap multiply, and the smallest rate counts. In
    lockstep real transfers take longer, but not their modelled durations, so the model does not
    change."""

    requires: ClassVar[frozenset[Requirement]] = frozenset({Requirement.GATEWAY, Requirement.RATES})

    factor: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Factor of the rates; it is 1 if `rate` is given without it."""

    rate: LinkRate = _NO_LIMIT
    """The rates are at most this, as "100 kbit/s". The default is no limit."""

    way: Literal["both", "up", "down"] = "both"
    """The direction that is slower: up is from the devices to the server."""

    def change(self) -> LinkChange:
        given = "rate" not in self.model_fields_set or "factor" in self.model_fields_set
        return LinkChange(
            rate_factor=self.factor if given else 1.0,
            most_bps=math.inf if self.rate == _NO_LIMIT else self.rate,
            ways=self._ways,
        )

    @property
    def _ways(self) -> Sequence[Direction]:
        return [way for way in DIRECTIONS if self.way in ("both", way)]

    def measured(self, link: LinkMeasures) -> float | None:
        return next((link.bps[way] for way in self._ways if way in link.bps), None)

    def expected(self, shape: Shape) -> float:
        # The mean of a rate that varies does not depend on the seed and the client.
        means = [rate_of(shape, way, 0, "").mean for way in self._ways]
        return 8 * next((mean for mean in means if math.isfinite(mean)), math.inf)

    def told(self, value: float, link: LinkMeasures) -> str:
        return f"{value / 1e6:.3g} Mbit/s"
