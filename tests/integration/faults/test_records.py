"""How plans foresee faults, how runs record them, and which runs refuse them."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.integration.faults.playing import (
    EVENTS,
    STRUCK,
    WHOLE,
    Play,
    on_struck,
    scenario,
)

from muster.common.errors import ConfigError
from muster.emulator.fleet.scenario_faults import ScenarioFaults
from muster.emulator.injection.run_faults import record_afterwards
from muster.emulator.launch.docker.compose_command import require_supported
from muster.emulator.planning import plan
from muster.emulator.records.account import Account
from muster.emulator.scenario.population import population
from muster.simulation.whole_run import simulate_run


def test_the_plan_foresees_what_a_run_with_faults_does(play: Play) -> None:
    faults = (
        {"do": "offline", "target": {"percent": 50}, "when": {"round": 2}, "for_rounds": 3},
        {"do": "slow", "target": {"count": 2}, "when": {"at_s": 120.0}, "for_s": 180.0},
        {"do": "offline", "when": {"mean_up_s": 200.0, "mean_down_s": 90.0}},
    )
    more = {"server": {"rounds": 12, "deadline_s": 5.0, "minimum": 1}}
    done = play(*faults, **more)
    foreseen = plan(scenario(*faults, **more))
    counts = done.contributions.groupby(["call_round", "outcome"]).size().unstack(fill_value=0)
    counts = counts.reindex(range(1, 13), fill_value=0)
    (group,) = foreseen.groups
    np.testing.assert_array_equal(group.late, counts["late"])
    np.testing.assert_array_equal(group.delivered, counts["late"] + counts["folded"])


def test_a_fault_that_shows_nowhere_is_vacuous(play: Play) -> None:
    # Devices without a simulated state report no network, and nothing requires a free one.
    done = play(on_struck("metered"), on_struck("offline"))
    assert done.summary["vacuous"] == ["metered-1"]
    assert [state for state, _ in done.states("metered-1")] == ["planned", "applied", "healed"]


def test_the_timeline_is_in_the_run_folder(play: Play) -> None:
    done = play(on_struck("offline"))
    (fault,) = json.loads((done.folder / "faults.json").read_text())["faults"]
    assert fault["targets"] == [STRUCK]
    assert fault["occurrences"][0]["first_round"] == 3


def test_a_run_without_faults_has_neither_a_timeline_nor_keys_about_faults(play: Play) -> None:
    done = play()
    assert not (done.folder / "faults.json").exists()
    assert not {"faults", "vacuous"} & done.summary.keys()


def test_a_simulated_run_refuses_faults_of_processes() -> None:
    with pytest.raises(ConfigError, match="no processes and no links"):
        simulate_run(scenario({"do": "restart", "when": {"round": 3}}), Path("never"))


def test_a_run_that_goes_on_records_nothing_twice(play: Play) -> None:
    done = play(on_struck("offline"), on_struck("nan"))
    read = scenario(on_struck("offline"), on_struck("nan"))
    journal = (done.folder / "journal.jsonl").read_bytes()
    record_afterwards(done.folder, ScenarioFaults.of(read, population(read)))
    assert (done.folder / "journal.jsonl").read_bytes() == journal


def test_the_rest_of_a_fault_is_recorded_when_the_run_goes_on(play: Play) -> None:
    """As if the run had been killed in the fault: only what is missing is recorded."""
    done = play(on_struck("offline"))
    path = done.folder / "journal.jsonl"
    kept = [line for line in path.read_bytes().splitlines(True) if b'"fault_healed"' not in line]
    kept = [line for line in kept if b'"fault_verified"' not in line]
    path.write_bytes(b"".join(kept))
    read = scenario(on_struck("offline"))
    record_afterwards(done.folder, ScenarioFaults.of(read, population(read)))
    with Account(done.folder) as account:
        found = [(event["event"], event["round"]) for event in account.events(*EVENTS)]
    assert found == [(f"fault_{state}", round) for state, round in WHOLE]


def test_a_swarm_refuses_faults() -> None:
    with pytest.raises(ConfigError, match="use `muster up` without --swarm"):
        require_supported(scenario(on_struck("offline")))
