"""The fault `degrade`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from pydantic import Field

from muster.common.faults import FaultConditions
from muster.emulator.faults.catalogue.link_fault import at_gateways
from muster.emulator.faults.injection import FaultSite, InjectedFault


class Degrade(InjectedFault):
    """The rates of the device's own link, up and down, are multiplied by a factor. Factors of
    faults that overlap multiply. In lockstep real transfers take longer, but not their modelled
    durations, so the model does not change."""

    factor: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Factor of the rates."""

    def refusals(self, conditions: FaultConditions) -> Iterator[str]:
        yield from at_gateways(self.kind, conditions)
        for group in conditions.groups:
            if group.gateway and not group.rates:
                yield (
                    f"degrade multiplies the rates of links, but those of group {group.name!r} "
                    f"have no rates; set link.up and link.down, or link.profile"
                )

    async def apply(self, site: FaultSite, targets: Sequence[str]) -> None:
        await site.scale_rates(targets, self.factor)

    async def heal(self, site: FaultSite, targets: Sequence[str]) -> None:
        await site.restore_rates(targets, self.factor)

    async def measure(self, site: FaultSite, targets: Sequence[str]) -> Mapping[str, float]:
        """The rate that each link has had since the look before, in share of its nominal rate."""
        return await site.measured_rates(targets)

    async def observe(
        self, site: FaultSite, targets: Sequence[str], before: Mapping[str, float]
    ) -> Mapping[str, str]:
        # Halfway between the factor and 1, because rates may vary by themselves.
        limit = (1 + self.factor) / 2
        now = await site.measured_rates(targets)
        return {
            target: f"the gateway measured {100 * now[target]:.0f} % of the rate"
            for target in targets
            if now.get(target, 1.0) < limit
        }

    async def verify(self, site: FaultSite, targets: Sequence[str], since: int) -> Sequence[str]:
        limit, now = (1 + self.factor) / 2, await site.measured_rates(targets)
        return [target for target in targets if now.get(target, 0.0) >= limit]
