"""What a seed of `make chaos` plays."""

from collections import Counter
from typing import Any

import pytest

from muster.chaos.fault_draws import LEFT_OUT, SETTINGS
from muster.chaos.plans import ChaosPlan, draw_plan
from muster.emulator.faults.registry import BUILT_IN

SEEDS = range(60)


@pytest.fixture(scope="module")
def plans() -> list[ChaosPlan]:
    return [draw_plan(seed) for seed in SEEDS]


def test_every_kind_of_fault_is_drawn_or_left_out_for_a_reason() -> None:
    """If this fails, you have added a kind: enter it in `muster.chaos.fault_draws`."""
    assert SETTINGS.keys() | LEFT_OUT.keys() == BUILT_IN.keys()
    assert not SETTINGS.keys() & LEFT_OUT.keys()
    assert all(LEFT_OUT.values())


def test_the_same_seed_gives_the_same_plan(plans: list[ChaosPlan]) -> None:
    assert draw_plan(SEEDS[7]) == plans[7]
    assert plans[7] != plans[8]


def test_plans_have_fleets_faults_and_kills_of_every_sort(plans: list[ChaosPlan]) -> None:
    scenarios = [plan.scenario for plan in plans]
    clocks = {scenario.clock.kind for scenario in scenarios}
    assert clocks == {"rounds", "modelled", "wall", "scaled"}
    modes = {scenario.server.mode.kind for scenario in scenarios}
    assert modes == {"synchronous", "opportunistic", "buffered"}
    victims = {kill.victim for plan in plans for kill in plan.kills}
    assert victims == {"server", "device", "gateway", "supervisor"}
    kinds = Counter(fault.do.kind for scenario in scenarios for fault in scenario.faults)
    assert len(kinds) > 0.7 * len(SETTINGS)
    assert all(len(scenario.faults) >= 2 for scenario in scenarios)


def test_few_draws_are_refused(plans: list[ChaosPlan]) -> None:
    assert sum(plan.refused for plan in plans) < 0.05 * sum(plan.drawn for plan in plans)


def test_every_fault_ends_by_itself(plans: list[ChaosPlan]) -> None:
    def ends(fault: Any) -> bool:
        return fault.for_s is not None or fault.for_rounds is not None or not fault.do.lasts

    assert all(ends(fault) for plan in plans for fault in plan.scenario.faults)


def test_only_fleets_in_lockstep_are_drawn_if_they_are_asked_for() -> None:
    plans = [draw_plan(seed, lockstep=True) for seed in SEEDS[:20]]
    assert {plan.scenario.clock.kind for plan in plans} == {"rounds", "modelled"}
