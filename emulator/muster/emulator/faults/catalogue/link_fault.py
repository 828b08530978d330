"""What all faults have that strike the links of devices at their gateways."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from muster.common.requirements import Requirement
from muster.emulator.faults.injection import FaultSite, InjectedFault
from muster.emulator.faults.link_changes import LinkChange


class LinkFault(InjectedFault):
    """A fault that changes the links of devices while it lasts."""

    requires: ClassVar[frozenset[Requirement]] = frozenset({Requirement.GATEWAY})

    def change(self) -> LinkChange:
        """What it changes on a link."""
        raise NotImplementedError

    async def apply(self, site: FaultSite, targets: Sequence[str]) -> None:
        await site.links.begin(targets, self.change())

    async def heal(self, site: FaultSite, targets: Sequence[str]) -> None:
        await site.links.end(targets, self.change())


class ConnectionFault(LinkFault):
    """A fault of the connections of devices. Established connections are struck as well as new
    ones, and the gateway counts them: a fault that struck none was not observed."""

    needs_end: ClassVar[bool] = True

    async def measure(self, site: FaultSite, targets: Sequence[str]) -> Mapping[str, float]:
        """The number of connections that faults have struck so far."""
        return {
            client: link.struck for client, link in (await site.links.measures(targets)).items()
        }

    async def observe(
        self, site: FaultSite, targets: Sequence[str], before: Mapping[str, float]
    ) -> Mapping[str, str]:
        now = await self.measure(site, targets)
        return {
            target: "the gateway struck its connections"
            for target in targets
            if now.get(target, 0) > before.get(target, 0)
        }

    async def passing(self, site: FaultSite, targets: Sequence[str]) -> Sequence[str]:
        """The targets whose links have delivered bytes, and struck no connection, since they
        changed last."""
        measures = await site.links.measures(targets)
        return [
            client
            for client, link in measures.items()
            if link.bytes_lately and not link.struck_lately
        ]
