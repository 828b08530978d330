"""The injector: when occurrences begin and end, and what it tells of them, on a fleet of paper."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, ClassVar, cast

import pytest

from muster.common.events import Event
from muster.common.testing import ManualClock
from muster.emulator.faults.injection import FaultSite, InjectedFault
from muster.emulator.faults.times import RunTime
from muster.emulator.fleet.fault_timeline import FaultTimeline, Occurrence, TimelineFault
from muster.emulator.injection.injector import FaultInjector

LOCKSTEP = RunTime(lockstep=True, fixed=True, round_s=60.0, rounds=20, horizon_s=1200.0)
WALL = RunTime(lockstep=False, fixed=False, round_s=5.0, rounds=20, horizon_s=1000.0)


class Noted(InjectedFault):
    """A fault that only notes what is asked of it."""

    needs_end: ClassVar[bool] = True
    shows: bool = True
    returns: bool = True
    log: ClassVar[list[str]] = []

    async def apply(self, site: FaultSite, targets: Sequence[str]) -> None:
        self.log.append(f"apply {' '.join(targets)}")

    async def heal(self, site: FaultSite, targets: Sequence[str]) -> None:
        self.log.append(f"heal {' '.join(targets)}")

    async def observe(
        self, site: FaultSite, targets: Sequence[str], before: Mapping[str, float]
    ) -> Mapping[str, str]:
        self.log.append("look")
        return dict.fromkeys(targets, "noted") if self.shows else {}

    async def verify(self, site: FaultSite, targets: Sequence[str], since: int) -> Sequence[str]:
        self.log.append("verify")
        if self.returns:
            return targets
        return [target for target in targets if site.back_since(target, since)]


class Paper:
    """A fleet in which only some targets are ready."""

    moment = 0

    def __init__(self) -> None:
        self.alive = {"a", "b"}
        self.back: set[str] = set()

    def back_since(self, target: str, moment: int) -> bool:
        return target in self.back

    def ready(self, targets: Sequence[str]) -> list[str]:
        return [target for target in targets if target in self.alive]


class Bench:
    def __init__(self, time: RunTime, do: InjectedFault, *occurrences: Occurrence) -> None:
        Noted.log.clear()
        self.clock = ManualClock()
        self.told: list[Event] = []
        self.errors: list[Exception] = []
        self.site = Paper()
        fault = TimelineFault(name="f", do=do, targets=["a", "b"], occurrences=list(occurrences))
        self.injector = FaultInjector(
            FaultTimeline(faults=[fault]),
            time,
            cast(FaultSite, self.site),
            self.clock,
            1.0,
            self.told.append,
            self.errors.append,
            set(),
        )

    async def opened(self, round: int, scenario_s: float = 0.0) -> None:
        at = self.clock.now()
        line = {"event": "round_opened", "round": round, "scenario_s": scenario_s, "at": at}
        await self.happen(line)

    async def happen(self, line: Mapping[str, Any]) -> None:
        self.injector.happen(line)
        await settle()

    @property
    def states(self) -> list[str]:
        return [event.name.removeprefix("fault_") for event in self.told]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def acts() -> list[str]:
    """What was done to the fleet, without looks at it."""
    return [each for each in Noted.log if each not in ("look", "verify")]


def occurrence(**times: Any) -> Occurrence:
    return Occurrence(number=1, targets=["a", "b"], **times)


@pytest.fixture
async def benches() -> AsyncIterator[list[Bench]]:
    made: list[Bench] = []
    yield made
    for bench in made:
        await bench.injector.close()


async def test_a_round_begins_a_fault_and_wall_time_ends_it_in_lockstep(
    benches: list[Bench],
) -> None:
    bench = Bench(LOCKSTEP, Noted(kind="noted"), occurrence(first_round=3, lasts_s=2.0))
    benches.append(bench)
    await bench.opened(2)
    assert bench.states == []
    await bench.opened(3)
    assert bench.states == ["applied", "observed"]
    bench.clock.advance(1.9)
    await settle()
    assert bench.states == ["applied", "observed"]
    bench.clock.advance(0.2)
    await settle()
    assert bench.states == ["applied", "observed", "healed", "verified"]
    assert acts() == ["apply a b", "heal a b"]


async def test_on_a_clock_that_runs_scenario_time_begins_and_a_round_ends_a_fault(
    benches: list[Bench],
) -> None:
    bench = Bench(WALL, Noted(kind="noted"), occurrence(begin_s=12.0, end_round=4))
    benches.append(bench)
    await bench.opened(1, scenario_s=2.0)
    bench.clock.advance(9.9)
    await settle()
    assert bench.states == []
    bench.clock.advance(0.2)
    await settle()
    assert bench.states == ["applied", "observed"]
    await bench.opened(3, scenario_s=20.0)
    assert bench.states == ["applied", "observed"]
    await bench.opened(4, scenario_s=25.0)
    assert bench.states == ["applied", "observed", "healed", "verified"]


async def test_an_event_begins_a_fault_once(benches: list[Bench]) -> None:
    bench = Bench(LOCKSTEP, Noted(kind="noted"), occurrence(event="evaluated", lasts_s=1.0))
    benches.append(bench)
    for _ in range(3):
        await bench.happen({"event": "evaluated", "round": 2})
    assert bench.states == ["applied", "observed"]


async def test_an_effect_that_shows_only_when_a_short_fault_is_healed_is_observed(
    benches: list[Bench],
) -> None:
    class Slow(Noted):
        async def observe(
            self, site: FaultSite, targets: Sequence[str], before: Mapping[str, float]
        ) -> Mapping[str, str]:
            return dict.fromkeys(targets, "ended") if "heal a b" in self.log else {}

    bench = Bench(LOCKSTEP, Slow(kind="slow"), occurrence(first_round=3, lasts_s=0.2))
    benches.append(bench)
    await bench.opened(3)
    assert bench.states == ["applied"]
    bench.clock.advance(0.3)
    await settle()
    assert bench.states == ["applied", "observed", "healed", "verified"]


async def test_a_fault_without_an_effect_is_never_observed(benches: list[Bench]) -> None:
    silent = Noted(kind="noted", shows=False)
    bench = Bench(LOCKSTEP, silent, occurrence(first_round=1, lasts_s=1.0))
    benches.append(bench)
    await bench.opened(1)
    bench.clock.advance(1.5)
    await settle()
    assert "observed" not in bench.states
    assert "healed" in bench.states


async def test_only_targets_that_are_alive_are_struck(benches: list[Bench]) -> None:
    bench = Bench(LOCKSTEP, Noted(kind="noted"), occurrence(first_round=1, lasts_s=1.0))
    benches.append(bench)
    bench.site.alive = {"b"}
    await bench.opened(1)
    assert acts() == ["apply b"]
    nobody = Bench(LOCKSTEP, Noted(kind="noted"), occurrence(first_round=1, lasts_s=1.0))
    benches.append(nobody)
    nobody.site.alive = set()
    await nobody.opened(1)
    assert nobody.states == []


async def test_the_end_of_the_run_heals_everything() -> None:
    bench = Bench(LOCKSTEP, Noted(kind="noted"), occurrence(first_round=1))
    await bench.opened(1)
    await bench.happen({"event": "ended"})
    await bench.injector.close()
    assert acts() == ["apply a b", "heal a b"]
    assert "healed" in bench.states


async def test_nothing_begins_between_the_end_of_the_rounds_and_that_of_the_run(
    benches: list[Bench],
) -> None:
    bench = Bench(WALL, Noted(kind="noted"), occurrence(begin_s=5.0, lasts_s=1.0))
    benches.append(bench)
    await bench.opened(1)
    await bench.happen({"event": "ended"})
    bench.clock.advance(6.0)
    await settle()
    assert bench.states == []


async def test_a_fault_that_cannot_be_applied_fails_the_run() -> None:
    class Broken(Noted):
        async def apply(self, site: FaultSite, targets: Sequence[str]) -> None:
            raise OSError("no such thing")

    bench = Bench(LOCKSTEP, Broken(kind="broken"), occurrence(first_round=1, lasts_s=1.0))
    await bench.opened(1)
    await bench.injector.close()
    assert [str(error) for error in bench.errors] == ["no such thing"]


async def test_the_last_looks_are_when_the_fault_ends_and_when_it_is_healed(
    benches: list[Bench],
) -> None:
    hidden = Noted(kind="noted", shows=False)
    bench = Bench(LOCKSTEP, hidden, occurrence(first_round=1, lasts_s=1.0))
    benches.append(bench)
    await bench.opened(1)
    before = Noted.log.count("look")
    await settle()
    assert Noted.log.count("look") == before  # no time has passed
    bench.clock.advance(1.0)
    await settle()
    assert Noted.log[-3:] == ["look", "heal a b", "look"]


async def test_looks_become_rare(benches: list[Bench]) -> None:
    hidden = Noted(kind="noted", shows=False)
    bench = Bench(LOCKSTEP, hidden, occurrence(first_round=1, lasts_s=101.0))
    benches.append(bench)
    await bench.opened(1)
    for _ in range(1000):
        bench.clock.advance(0.1)
        await settle()
    # 0.02 s, a quarter longer each time, until it is 0.5 s; then 2 a second.
    assert 190 <= Noted.log.count("look") <= 225


async def test_a_target_that_is_back_is_seen_soon_however_long_it_was_away(
    benches: list[Bench],
) -> None:
    away = Noted(kind="noted", returns=False)
    bench = Bench(LOCKSTEP, away, occurrence(first_round=1, lasts_s=1.0))
    benches.append(bench)
    await bench.opened(1)
    for _ in range(600):
        bench.clock.advance(0.1)
        await settle()
    assert bench.states[-1] == "healed"
    looks = Noted.log.count("verify")
    assert looks <= 150
    bench.site.back = {"a", "b"}
    await bench.happen({"event": "attended", "client": "b"})
    for _ in range(2):
        bench.clock.advance(0.02)
        await settle()
    assert bench.states[-1] == "verified"


async def test_faults_of_scenario_times_that_passed_while_the_run_stood_do_not_begin(
    benches: list[Bench],
) -> None:
    do = Noted(kind="noted")
    passed, lasting = occurrence(begin_s=5.0, lasts_s=1.0), occurrence(begin_s=5.0)
    for each, states in ((passed, []), (lasting, ["applied", "observed"])):
        bench = Bench(WALL, do, each)
        benches.append(bench)
        await bench.opened(7, scenario_s=30.0)
        assert bench.states == states
