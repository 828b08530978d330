"""The fault `degrade-shared`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from muster.common.faults import FaultConditions, Role
from muster.common.requirements import Requirement
from muster.emulator.faults.catalogue.degrade import Degrade
from muster.emulator.faults.injection import FaultSite
from muster.emulator.links.shape import SharedState


class DegradeShared(Degrade):
    """The rates of a shared link are multiplied by a factor, or at most an absolute rate, for all
    its devices together; those of its cells stay. Otherwise as `degrade`."""

    roles: ClassVar[frozenset[Role]] = frozenset({"gateway"})
    requires: ClassVar[frozenset[Requirement]] = frozenset({Requirement.GATEWAY})

    def refusals(self, conditions: FaultConditions) -> Iterator[str]:
        without = [group.name for group in conditions.groups if not group.shared_rates]
        if without:
            yield (
                f"{self.kind} needs shared links with rates, and group {without[0]!r} has none; "
                f"set groups.shared_link, or name another target.group"
            )

    async def apply(self, site: FaultSite, targets: Sequence[str]) -> None:
        await site.links.shared.begin(targets, self.change())

    async def heal(self, site: FaultSite, targets: Sequence[str]) -> None:
        await site.links.shared.end(targets, self.change())

    async def observe(
        self, site: FaultSite, targets: Sequence[str], before: Mapping[str, float]
    ) -> Mapping[str, str]:
        shared = site.links.shared
        found = {target: shared.state(target, but=self.change()) for target in targets}
        return {
            target: f"the gateway measured {bps / 1e6:.3g} Mbit/s"
            for target, bps in (await self._nearer(site, found)).items()
        }

    async def verify(self, site: FaultSite, targets: Sequence[str], since: int) -> Sequence[str]:
        shared = site.links.shared
        found = {target: shared.state(target, with_=self.change()) for target in targets}
        return list(await self._nearer(site, found))

    async def _nearer(
        self, site: FaultSite, others: Mapping[str, SharedState]
    ) -> Mapping[str, float]:
        """What was measured of the links that are nearer to what they should be than to others, in
        bits per second."""
        shared, found = site.links.shared, {}
        for target, bps in (await shared.measures(list(others))).items():
            limited = [each for each in self._ways if each in bps]
            if not limited:
                continue
            way = limited[0]
            now_bps = shared.mean_bps(target, way, shared.state(target))
            other_bps = shared.mean_bps(target, way, others[target])
            if abs(bps[way] - now_bps) < abs(bps[way] - other_bps):
                found[target] = bps[way]
        return found
