"""The fault `memory-limit`."""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from muster.common.faults import Role
from muster.emulator.faults.catalogue.killing import EVERYTHING
from muster.emulator.faults.injection import FaultSite, InjectedFault

_MEBI = 1 << 20


class MemoryLimit(InjectedFault):
    """The program may use only so much memory: a container in all, a process as private writable
    memory (RLIMIT_DATA). A program that ends because of it stays down until the fault is healed; a
    container that uses more already is ended at once. The smallest limit of faults that overlap
    counts."""

    roles: ClassVar[frozenset[Role]] = EVERYTHING
    needs_end: ClassVar[bool] = True

    mib: Annotated[float, Field(ge=8, le=1 << 20)]
    """The limit in MiB."""

    @property
    def _bytes(self) -> int:
        return int(self.mib * _MEBI)

    async def apply(self, site: FaultSite, targets: Sequence[str]) -> None:
        await site.limit(targets, "memory", self._bytes)

    async def heal(self, site: FaultSite, targets: Sequence[str]) -> None:
        await site.free(targets, "memory", self._bytes)

    async def observe(
        self, site: FaultSite, targets: Sequence[str], before: Mapping[str, float]
    ) -> Mapping[str, str]:
        ended = {t: "ended at its limit" for t in targets if site.death_of(t) is not None}
        alive = [target for target in targets if target not in ended]
        return ended | {
            target: f"limited to {self.mib:g} MiB"
            for target, use in (await site.use(alive)).items()
            if 0 <= use.memory_limit <= self._bytes
        }

    async def verify(self, site: FaultSite, targets: Sequence[str], since: int) -> Sequence[str]:
        use = await site.use(site.ready(targets))
        return [
            target
            for target in use
            if not 0 <= use[target].memory_limit <= self._bytes
            and (site.death_of(target) is None or site.back_since(target, since))
        ]
