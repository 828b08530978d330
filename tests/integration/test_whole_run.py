"""A run inside one process has the same results as a run of real processes."""

from pathlib import Path
from typing import Any

import pytest

from muster.common.config import validate
from muster.common.errors import ConfigError, RunFailed
from muster.emulator import run
from muster.emulator.records.account import Account
from muster.emulator.records.summary import read_summary
from muster.emulator.scenario.scenario import Scenario
from muster.server.rounds.modes import contract
from muster.simulation.whole_run import simulate_run

VALUES: dict[str, Any] = {
    "name": "twin",
    "seed": 5,
    "task": {
        "name": "logistic",
        "model": "linear",
        "dimension": 3,
        "examples_per_client": 10,
        "covariates": ["age"],
    },
    "training": {"local_steps": 2, "batch_size": 4, "learning_rate": 0.1},
    "server": {"rounds": 4, "aggregator": "importance", "evaluate_devices": True},
    "groups": [
        {
            "name": "dev",
            "count": 4,
            "devices_per_process": 2,
            "covariates": {"z": {"age": {"kind": "normal"}}},
            "availability": {"kind": "bernoulli", "probability": 0.7},
        }
    ],
}


(GROUP,) = VALUES["groups"]


def with_slots(overflow: str) -> Scenario:
    shared = {"slots": 2, "overflow": overflow}
    group = {**GROUP, "devices_per_process": 1, "shared_link": shared}
    return validate(Scenario, {**VALUES, "groups": [group]}, "twin")


@pytest.mark.system
@pytest.mark.parametrize(
    "scenario",
    [validate(Scenario, VALUES, "twin"), with_slots("collide"), with_slots("subset")],
    ids=["unlimited", "collide", "subset"],
)
def test_it_leaves_the_same_model_metrics_and_account_as_real_processes(
    scenario: Scenario, tmp_path: Path
) -> None:
    assert simulate_run(scenario, tmp_path / "memory") == "completed"
    run(scenario, out=tmp_path / "real", report=False).ledger.close()
    ours, theirs = (read_summary(tmp_path / name) for name in ("memory", "real"))
    for key in ("status", "model_sha256", "updates_folded", "bytes_up", "bytes_down", "final"):
        assert ours[key] == theirs[key], key
    memory, real = Account(tmp_path / "memory"), Account(tmp_path / "real")
    columns = ["round", "client", "outcome", "reason", "weight"]
    assert memory.contributions[columns].equals(real.contributions[columns])
    measured = ["version", "client", "loss"]
    assert memory.device_evaluations[measured].equals(real.device_evaluations[measured])
    memory.close()
    real.close()


def test_a_run_that_depends_on_real_time_is_refused(tmp_path: Path) -> None:
    wall = {"clock": {"kind": "wall"}, "server": {"rounds": 4, "deadline_s": 5.0}}
    scenario = validate(Scenario, {**VALUES, **wall}, "twin")
    with pytest.raises(ConfigError, match="must be in lockstep"):
        simulate_run(scenario, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_whose_devices_wait_for_slots_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='expected "collide" or "subset", found "queue"'):
        simulate_run(with_slots("queue"), tmp_path / "run")


def test_a_run_that_could_not_start_is_refused_too(tmp_path: Path) -> None:
    group = {**GROUP, "enrollment": {"kind": "bernoulli", "probability": 0.0}}
    groups = [{**GROUP, "name": "a", "count": 2}, {**group, "name": "b", "count": 2}]
    server = {"rounds": 3, "mode": {"kind": "buffered", "k": 3, "concurrency": 4}}
    scenario = validate(Scenario, {**VALUES, "server": server, "groups": groups}, "twin")
    with pytest.raises(ConfigError, match="k: 3 updates, but only 2 devices may take part"):
        simulate_run(scenario, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_that_makes_no_version_for_long_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract, "MOST_BARREN", 20)
    unwilling = {**GROUP, "availability": {"kind": "bernoulli", "probability": 1e-12}}
    mode = {"kind": "buffered", "k": 2, "concurrency": 4}
    server = {"rounds": 3, "mode": mode}
    scenario = validate(Scenario, {**VALUES, "server": server, "groups": [unwilling]}, "twin")
    with pytest.raises(RunFailed, match="20 rounds in a row made no version"):
        simulate_run(scenario, tmp_path / "run")
