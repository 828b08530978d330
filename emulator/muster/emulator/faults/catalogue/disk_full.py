"""The fault `disk-full`."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from muster.common.faults import Role
from muster.emulator.faults.injection import FaultSite, InjectedFault


class FullDisk(InjectedFault):
    """The server's disk takes no more: every write of the server to a file fails (RLIMIT_FSIZE),
    although the disk itself has room. The server waits, acknowledges nothing that it could not
    keep, and goes on when the fault is healed."""

    roles: ClassVar[frozenset[Role]] = frozenset({"server"})
    needs_end: ClassVar[bool] = True

    async def apply(self, site: FaultSite, targets: Sequence[str]) -> None:
        await site.limit(targets, "files", 0)

    async def heal(self, site: FaultSite, targets: Sequence[str]) -> None:
        await site.free(targets, "files", 0)

    async def observe(
        self, site: FaultSite, targets: Sequence[str], before: Mapping[str, float]
    ) -> Mapping[str, str]:
        return dict.fromkeys(targets if site.lacks_room else (), "the server waits for room")

    async def verify(self, site: FaultSite, targets: Sequence[str], since: int) -> Sequence[str]:
        return [] if site.lacks_room else site.ready(targets)
