"""The programs of a fleet under several faults: which death belongs to which, and what holds when a
fault is healed while a program is being held."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from muster.common.testing import ManualClock
from muster.emulator.faults.catalogue.memory_limit import MemoryLimit
from muster.emulator.injection.fleet_site import FleetSite
from muster.emulator.launch.backend import ProgramUse
from muster.emulator.run_folder.limits import Limited

MEBI = 1 << 20


class FakeProgram:
    """A program whose memory is limited to 64 MiB."""

    def __init__(self) -> None:
        self.signals = list[int]()

    def signal(self, number: int) -> None:
        self.signals.append(number)

    @property
    def identity(self) -> Mapping[str, Any]:
        return {"pid": 1}

    def use(self) -> ProgramUse:
        return ProgramUse(0.0, 0, MEBI, 64 * MEBI)


class FakePauses:
    """Keeps what is paused and limited. `slow` holds every new hold up until it is set."""

    def __init__(self) -> None:
        self.holds = set[str]()
        self.limited = list[str]()
        self.asked, self.slow = asyncio.Event(), asyncio.Event()
        self.slow.set()

    async def pause(self, name: str, handle: Mapping[str, Any]) -> bool:
        await self.slow.wait()
        self.holds.add("pause")
        return True

    async def resume(self, name: str) -> None:
        self.holds.discard("pause")

    async def limit(self, name: str, what: Limited, value: float, handle: Mapping[str, Any]) -> str:
        self.asked.set()
        await self.slow.wait()
        self.holds.add(what)
        self.limited.append(name)
        return ""

    async def free(self, name: str, what: Limited) -> None:
        self.holds.discard(what)

    async def held_back(self, name: str) -> int:
        return 0


class Fleet:
    """A site with the server alone, and its fakes."""

    def __init__(self) -> None:
        self.pauses = FakePauses()
        self.alive = {"server": FakeProgram()}
        configs = SimpleNamespace(
            residents=[], scenario=SimpleNamespace(groups=[]), folder=Path("nowhere")
        )
        network = SimpleNamespace(on_connection=lambda renew: None)
        self.site = FleetSite(
            cast(
                Any,
                SimpleNamespace(alive=self.alive, cause_of=lambda name: "", pauses=self.pauses),
            ),
            cast(Any, network),
            ManualClock(),
            self.start,
            lambda: True,
            cast(Any, configs),
        )

    async def start(self, name: str) -> None:
        self.alive[name] = FakeProgram()

    def die(self, status: int) -> bool:
        del self.alive["server"]
        return self.site.died("server", status)


@pytest.fixture
async def fleet() -> Fleet:
    return Fleet()


async def test_a_limit_of_memory_is_not_taken_for_an_earlier_death(fleet: Fleet) -> None:
    site = fleet.site
    site.kill("server", 9)
    assert fleet.die(-9)
    await site.start("server")
    assert site.death_of("server") == -9
    limit = MemoryLimit(mib=64)
    await limit.apply(site, ["server"])
    assert await limit.observe(site, ["server"], {}) == {"server": "limited to 64 MiB"}
    assert fleet.die(1)  # of the limit
    assert await limit.observe(site, ["server"], {}) == {"server": "ended at its limit"}
    await limit.heal(site, ["server"])
    assert "server" in fleet.alive


async def test_a_limit_does_not_hide_a_death_of_the_same_moment(fleet: Fleet) -> None:
    site = fleet.site
    site.kill("server", 9)
    fleet.die(-9)
    await MemoryLimit(mib=64).apply(site, ["server"])  # it was ready before
    assert site.death_of("server") == -9


@pytest.mark.parametrize("again", [False, True])
async def test_what_is_healed_while_it_is_on_its_way_does_not_stay(
    fleet: Fleet, again: bool
) -> None:
    """A program that was started again is held again; meanwhile the faults are healed."""
    site = fleet.site
    await site.pause("server")
    await site.limit(["server"], "cpu", 0.5)
    fleet.pauses.holds.clear()
    fleet.pauses.asked.clear()
    fleet.pauses.slow.clear()
    holding = asyncio.create_task(site.started("server"))
    await fleet.pauses.asked.wait()
    freeing = [asyncio.create_task(site.free(["server"], "cpu", 0.5))]
    freeing.append(asyncio.create_task(site.resume("server")))
    if again:
        freeing.append(asyncio.create_task(site.pause("server")))
    await asyncio.sleep(0)
    fleet.pauses.slow.set()
    await asyncio.gather(holding, *freeing)
    assert fleet.pauses.holds == ({"pause"} if again else set())


async def test_faults_of_packs_that_share_a_container_overlap_in_it(fleet: Fleet) -> None:
    site, shared = fleet.site, FakeProgram()
    fleet.alive |= {"pack-1": shared, "pack-2": shared, "packs-1": shared}
    site.add_packs([pack("pack-2", "b"), pack("pack-1", "a")])
    assert site.ready(["a", "b"]) == ["a", "b"]
    await site.limit(["b", "a"], "cpu", 0.5)
    assert fleet.pauses.limited == ["pack-1"]
    await site.pause("a")
    await site.pause("b")
    await site.resume("a")
    assert fleet.pauses.holds == {"cpu", "pause"}
    site.kill("b", 9)
    for name in ("pack-1", "pack-2", "packs-1"):
        del fleet.alive[name]
    assert site.died("pack-2", -9)
    assert site.death_of("a") == -9
    await site.free(["b", "a"], "cpu", 0.5)
    await site.resume("b")
    assert fleet.pauses.holds == set()


def pack(name: str, client: str) -> Any:
    return SimpleNamespace(name=name, devices=[SimpleNamespace(client=client)])
