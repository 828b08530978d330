"""The fault `pause`."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from muster.common.faults import Role
from muster.emulator.faults.catalogue.killing import EVERYTHING
from muster.emulator.faults.injection import FaultSite, InjectedFault


class PauseProgram(InjectedFault):
    """The program is stopped without ending (SIGSTOP; docker pause) and goes on when the fault is
    healed. Its connections stay open and silent, as if its machine hung. If the supervisor dies or
    hangs, a watchdog lets the program go on."""

    roles: ClassVar[frozenset[Role]] = EVERYTHING
    needs_end: ClassVar[bool] = True

    async def apply(self, site: FaultSite, targets: Sequence[str]) -> None:
        for target in targets:
            await site.pause(target)

    async def heal(self, site: FaultSite, targets: Sequence[str]) -> None:
        for target in targets:
            await site.resume(target)

    async def observe(
        self, site: FaultSite, targets: Sequence[str], before: Mapping[str, float]
    ) -> Mapping[str, str]:
        return dict.fromkeys(await site.paused(targets), "process stopped")

    async def verify(self, site: FaultSite, targets: Sequence[str], since: int) -> Sequence[str]:
        paused = await site.paused(targets)
        return [target for target in site.ready(targets) if target not in paused]
