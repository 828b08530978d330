"""A completed run goes on with more rounds, to the bits of a run that had them from the start."""

from pathlib import Path
from typing import Any

import pytest

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.emulator import run
from muster.emulator.run_audit import audit
from muster.emulator.runs.running import resume
from muster.emulator.scenario.scenario import Scenario


def scenario(rounds: int) -> Scenario:
    values: dict[str, Any] = {
        "name": "longer",
        "seed": 3,
        "task": {"name": "digits", "model": {"kind": "mlp", "hidden": [4]}},
        "training": {"learning_rate": {"kind": "exponential", "initial": 0.1, "decay": 0.9}},
        "server": {
            "rounds": rounds,
            "aggregator": "fedadam",
            "selection": {"kind": "uniform", "k": 2},
        },
        "groups": [{"name": "dev", "count": 4, "devices_per_process": 4}],
    }
    return validate(Scenario, values, "test")


def test_more_rounds_leave_the_model_of_a_run_that_began_with_them(tmp_path: Path) -> None:
    whole = run(scenario(4), out=tmp_path / "whole", report=False)
    folder = run(scenario(2), out=tmp_path / "longer", report=False).folder
    longer = resume(folder, rounds=4, report=False)
    assert longer.status == "completed"
    assert longer.summary["model_sha256"] == whole.summary["model_sha256"]
    assert not resume(folder, report=False).began
    assert (result := audit(folder)).agrees, result.first
    with pytest.raises(ConfigError, match=r"began with 4 and has made 4; expected at least 4"):
        resume(folder, rounds=3)
