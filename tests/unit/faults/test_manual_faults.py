"""Faults by hand: what is refused before anything happens, and what is injected otherwise."""

from collections.abc import AsyncIterator, Iterable
from typing import Any, cast

import pytest
from tests.integration.faults.playing import scenario
from tests.unit.faults.test_injector import Paper, settle

from muster.common.errors import ConfigError
from muster.common.events import Event
from muster.common.testing import ManualClock
from muster.emulator.faults.injection import FaultSite
from muster.emulator.fleet.fault_timeline import FaultTimeline
from muster.emulator.fleet.scenario_faults import run_time
from muster.emulator.injection.injector import FaultInjector
from muster.emulator.injection.manual_faults import FaultRequest, HealRequest, ManualFaults
from muster.emulator.scenario.population import population

CLIENTS = {"dev-0000", "dev-0001", "dev-0002", "dev-0003"}
WALL = {
    "clock": {"kind": "scaled", "scale": 10.0},
    "server": {"rounds": 6, "deadline_s": 60.0},
}


class PausedFleet(Paper):
    """A fleet on paper whose programs can be paused."""

    def __init__(self) -> None:
        super().__init__()
        self.alive = {*CLIENTS, "server"}
        self.held = set[str]()

    async def pause(self, target: str) -> None:
        self.held.add(target)

    async def resume(self, target: str) -> None:
        self.held.discard(target)

    async def paused(self, targets: Iterable[str]) -> list[str]:
        return [target for target in targets if target in self.held]


class Bench:
    def __init__(self, **more: Any) -> None:
        planned = scenario(**more)
        self.clock, self.site, self.told = ManualClock(), PausedFleet(), list[Event]()
        site = cast(FaultSite, self.site)
        self.injector = FaultInjector(
            FaultTimeline(),
            run_time(planned),
            site,
            self.clock,
            planned.clock.scale,
            self.told.append,
            lambda error: None,
            set(),
        )
        self.faults = ManualFaults(
            planned, population(planned), site, self.injector, self.told.append, {"outage"}
        )

    async def opened(self, round: int, scenario_s: float = 0.0) -> None:
        line = {"event": "round_opened", "round": round, "scenario_s": scenario_s}
        self.injector.happen({**line, "at": self.clock.now()})
        await settle()

    async def inject(self, kind: str, **request: Any) -> dict[str, Any]:
        return await self.faults.inject(FaultRequest(kind=kind, **request))


@pytest.fixture
async def benches() -> AsyncIterator[list[Bench]]:
    made: list[Bench] = []
    yield made
    for bench in made:
        await bench.injector.close()


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        ({"kind": "offline"}, "acts inside devices, which get their faults when they start"),
        ({"kind": "sign-flip"}, "acts inside devices, which get their faults when they start"),
        ({"kind": "nonsense"}, "nonsense"),
        ({"kind": "pause", "target": {"names": ["dev-0009"]}}, "there is no device 'dev-0009'"),
        ({"kind": "pause", "target": {"count": 5}}, "5 devices, but the target has only 4"),
        ({"kind": "stop", "target": {"role": "server"}}, "stop strikes a device, found 'server'"),
        ({"kind": "pause", "for_s": -1.0}, "for_s"),
        ({"kind": "pause", "for_s": 1e5}, "fails after server.stall_s"),
        ({"kind": "pause", "until_healed": True}, "in lockstep a round waits for every device"),
        ({"kind": "pause", "for_s": 1.0, "until_healed": True}, "both say how long"),
        ({"kind": "restart", "for_s": 1.0}, "happens at one moment"),
        ({"kind": "partition"}, "acts at a gateway, but group 'dev' has none"),
        ({"kind": "churn", "settings": {"share_percent": 200}}, "share_percent"),
        ({"kind": "churn", "settings": {"when": {"round": 2}}}, "begins now"),
        ({"kind": "pause", "name": "outage"}, "two faults are called 'outage'"),
    ],
)
async def test_what_a_scenario_could_not_have_is_refused_and_leaves_no_trace(
    benches: list[Bench], request_: dict[str, Any], why: str
) -> None:
    bench = Bench()
    benches.append(bench)
    await bench.opened(2)
    with pytest.raises(ConfigError, match=why):
        await bench.inject(**request_)
    assert bench.told == []
    assert bench.site.held == set()


async def test_nothing_is_injected_before_the_first_round_or_without_a_program(
    benches: list[Bench],
) -> None:
    bench = Bench()
    benches.append(bench)
    with pytest.raises(ConfigError, match="no round has opened yet"):
        await bench.inject("pause")
    await bench.opened(1)
    bench.site.alive = set()
    with pytest.raises(ConfigError, match="none of the targets runs at the moment: dev-0001"):
        await bench.inject("pause", target={"names": ["dev-0001"]})
    assert bench.told == []


async def test_a_fault_heals_itself_when_its_lease_is_over(benches: list[Bench]) -> None:
    bench = Bench()
    benches.append(bench)
    await bench.opened(2, 60.0)
    done = await bench.inject("pause", target={"count": 2})
    assert (done["name"], len(done["targets"]), done["for_s"]) == ("pause-1", 2, 5.0)
    assert bench.site.held == set(done["targets"])
    await settle()
    names = [event.name for event in bench.told]
    states = ["fault_injected", "fault_planned", "fault_applied", "fault_observed"]
    assert names == states
    bench.clock.advance(4.9)
    await settle()
    assert bench.site.held == set(done["targets"])
    bench.clock.advance(0.2)
    await settle()
    assert bench.site.held == set()
    assert [event.name for event in bench.told][4:] == ["fault_healed", "fault_verified"]
    assert {event.fields()["round"] for event in bench.told} == {2}
    assert {event.fields()["scenario_s"] for event in bench.told} == {60.0}


async def test_faults_that_are_chosen_are_healed_and_names_are_never_used_twice(
    benches: list[Bench],
) -> None:
    bench = Bench(**WALL)
    benches.append(bench)
    await bench.opened(1)
    for client in ("dev-0001", "dev-0002"):
        await bench.inject("pause", target={"names": [client]}, until_healed=True)
    bench.clock.advance(1000.0)
    await settle()
    assert bench.site.held == {"dev-0001", "dev-0002"}
    assert await bench.faults.heal(HealRequest(name="pause-2")) == ["pause-2"]
    assert bench.site.held == {"dev-0001"}
    with pytest.raises(ConfigError, match=r"no fault 'pause-2' .* acts now; these do: pause-1"):
        await bench.faults.heal(HealRequest(name="pause-2"))
    assert await bench.faults.heal(HealRequest(kind="pause")) == ["pause-1"]
    with pytest.raises(ConfigError, match="nothing has to be healed"):
        await bench.faults.heal(HealRequest())
    assert (await bench.inject("pause"))["name"] == "pause-3"


async def test_on_a_scaled_clock_durations_and_times_are_scenario_time(
    benches: list[Bench],
) -> None:
    bench = Bench(**WALL)
    benches.append(bench)
    await bench.opened(1, 100.0)
    bench.clock.advance(3.0)
    done = await bench.inject("pause")
    assert done["for_s"] == 50.0  # 5 s of wall time
    assert bench.told[0].fields()["scenario_s"] == pytest.approx(130.0)
    bench.clock.advance(5.1)
    await settle()
    assert bench.site.held == set()


async def test_nothing_is_recorded_of_a_request_that_comes_when_the_run_is_over() -> None:
    bench = Bench()
    await bench.opened(1)
    bench.injector.end()
    with pytest.raises(ConfigError, match="the run is over"):
        await bench.inject("pause")
    assert bench.told == []


@pytest.mark.parametrize("name", ["target", "do"])
async def test_a_setting_cannot_take_the_place_of_the_kind_or_of_the_target(name: str) -> None:
    bench = Bench()
    await bench.opened(1)
    with pytest.raises(ConfigError, match=f"{name}: expected a setting of crash itself"):
        await bench.inject("crash", settings={name: {"count": 1}})
    await bench.injector.close()
