"""What all faults have that end programs."""

import signal
from collections.abc import Mapping, Sequence
from typing import ClassVar

from muster.common.faults import Role
from muster.emulator.faults.injection import FaultSite, InjectedFault


class KillingFault(InjectedFault):
    """A fault that ends programs and lets them come back when it is healed."""

    needs_end: ClassVar[bool] = True
    number: ClassVar[int] = signal.SIGKILL
    """The signal."""

    async def apply(self, site: FaultSite, targets: Sequence[str]) -> None:
        for target in targets:
            site.kill(target, self.number)

    async def heal(self, site: FaultSite, targets: Sequence[str]) -> None:
        for target in targets:
            await site.start(target)

    async def observe(
        self, site: FaultSite, targets: Sequence[str], before: Mapping[str, float]
    ) -> Mapping[str, str]:
        deaths = {target: site.death_of(target) for target in targets}
        return {
            target: f"ended by signal {-status}" if status < 0 else f"ended with status {status}"
            for target, status in deaths.items()
            if status is not None
        }


EVERYTHING: frozenset[Role] = frozenset({"device", "server", "gateway"})
"""All programs that can be started again."""
