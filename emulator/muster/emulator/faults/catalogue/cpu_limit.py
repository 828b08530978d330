"""The fault `cpu-limit`."""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from muster.common.faults import Role
from muster.emulator.faults.catalogue.killing import EVERYTHING
from muster.emulator.faults.injection import FaultSite, InjectedFault

_MEASURED_S = 0.3
"""Least seconds over which a share of a core is measured. The kernel counts in steps of 10 ms."""


class CpuLimit(InjectedFault):
    """The program gets only a share of a core: a container by the kernel's quota, a process by
    being stopped in a part of every 50 ms. Shares of faults that overlap multiply."""

    roles: ClassVar[frozenset[Role]] = EVERYTHING

    share: Annotated[float, Field(ge=0.02, le=0.9)] = 0.2
    """Share of a core."""

    async def apply(self, site: FaultSite, targets: Sequence[str]) -> None:
        await site.limit(targets, "cpu", self.share)

    async def heal(self, site: FaultSite, targets: Sequence[str]) -> None:
        await site.free(targets, "cpu", self.share)

    async def observe(
        self, site: FaultSite, targets: Sequence[str], before: Mapping[str, float]
    ) -> Mapping[str, str]:
        # An idle program uses less than its share too: only one that was held back shows the limit.
        limit = (1 + self.share) / 2
        return {
            target: f"held back, at {100 * use.share:.0f} % of a core"
            for target, use in (await site.use(targets)).items()
            if use.held_back > 0 and use.seconds >= _MEASURED_S and use.share < limit
        }

    async def verify(self, site: FaultSite, targets: Sequence[str], since: int) -> Sequence[str]:
        paused = await site.paused(targets)
        return [target for target in site.ready(targets) if target not in paused]
