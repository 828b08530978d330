"""What all faults have that strike the links of devices at their gateways.

If faults overlap on a link, a cut overrides everything. Faults of the same kind that overlap all
last until the last of them is healed.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import ClassVar

from muster.common.errors import TransportError
from muster.common.faults import FaultConditions
from muster.emulator.faults.injection import FaultSite, InjectedFault
from muster.emulator.gateway.faults import FaultName
from muster.emulator.gateway.rates import Direction


class LinkFault(InjectedFault):
    """A fault of the links of devices. Established connections are struck as well as new ones, and
    the gateway counts them: a fault that struck none was not observed."""

    needs_end: ClassVar[bool] = True
    fault: ClassVar[FaultName]
    """The fault at the gateway."""

    def refusals(self, conditions: FaultConditions) -> Iterator[str]:
        return at_gateways(self.kind, conditions)

    def directions(self) -> Sequence[Direction | None]:
        """The directions in which it acts; None if the fault has no direction."""
        return [None]

    async def apply(self, site: FaultSite, targets: Sequence[str]) -> None:
        site.hold(targets, self.fault)
        for controller, clients in site.links(targets).values():
            # A gateway that is down has no connections to strike: there it stays unobserved.
            with suppress(TransportError):
                for direction in self.directions():
                    await controller.fault(clients, self.fault, direction=direction)

    async def heal(self, site: FaultSite, targets: Sequence[str]) -> None:
        free = site.release(targets, self.fault)
        for controller, clients in site.links(free if self.lasts else ()).values():
            with suppress(TransportError):  # a gateway that has died took its faults with it
                await controller.heal(clients, self.fault)

    async def measure(self, site: FaultSite, targets: Sequence[str]) -> Mapping[str, float]:
        """The number of connections that faults have struck so far."""
        found: dict[str, float] = {}
        for controller, clients in site.links(targets).values():
            with suppress(TransportError):
                devices = (await controller.stats())["devices"]
                found |= {client: devices[client]["struck"] for client in clients}
        return found

    async def observe(
        self, site: FaultSite, targets: Sequence[str], before: Mapping[str, float]
    ) -> Mapping[str, str]:
        now = await self.measure(site, targets)
        return {
            target: "the gateway struck its connections"
            for target in targets
            if now.get(target, 0) > before.get(target, 0)
        }


def at_gateways(kind: str, conditions: FaultConditions) -> Iterator[str]:
    """Refusals of a fault that acts at gateways."""
    for group in conditions.groups:
        if not group.gateway:
            yield (
                f"{kind} acts at a gateway, but group {group.name!r} has none; give it a link, for "
                f"example link.profile = 'unshaped'"
            )
