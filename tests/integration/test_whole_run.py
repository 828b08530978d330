"""A run inside one process has the same results as a run of real processes."""

from pathlib import Path

import pytest

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.emulator import run
from muster.emulator.results.account import Account
from muster.emulator.results.summary import read_summary
from muster.emulator.scenario.scenario import Scenario
from muster.emulator.simulation.whole_run import simulate_run

VALUES = {
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


@pytest.mark.system
def test_it_leaves_the_same_model_metrics_and_account_as_real_processes(tmp_path: Path) -> None:
    scenario = validate(Scenario, VALUES, "twin")
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
