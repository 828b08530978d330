"""The fault `degrade`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from pydantic import Field

from muster.common.faults import FaultConditions
from muster.emulator.faults.catalogue.link_fault import LinkFault
from muster.emulator.faults.injection import FaultSite
from muster.emulator.faults.link_changes import LinkChange


class Degrade(LinkFault):
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

    async def measure(self, site: FaultSite, targets: Sequence[str]) -> Mapping[str, float]:
        """The rate that each link has had since the look before, in share of its nominal rate."""
        measures = await site.links.measures(targets)
        return {
            client: link.rate_share
            for client, link in measures.items()
            if link.rate_share is not None
        }

    async def observe(
        self, site: FaultSite, targets: Sequence[str], before: Mapping[str, float]
    ) -> Mapping[str, str]:
        # Halfway between the factor and 1, because rates may vary by themselves.
        limit = (1 + self.factor) / 2
        now = await self.measure(site, targets)
        return {
            target: f"the gateway measured {100 * now[target]:.0f} % of the rate"
            for target in targets
            if now.get(target, 1.0) < limit
        }

    async def verify(self, site: FaultSite, targets: Sequence[str], since: int) -> Sequence[str]:
        limit, now = (1 + self.factor) / 2, await self.measure(site, targets)
        return [target for target in targets if now.get(target, 0.0) >= limit]
