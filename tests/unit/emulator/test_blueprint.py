from pathlib import Path
from typing import Any

import pytest

from muster.common.config import validate
from muster.emulator.runs.process_configs import ProcessConfigs
from muster.emulator.scenario.scenario import Scenario

PHONES = {"name": "phones", "count": 2, "device": {"profile": "phone"}}


@pytest.mark.parametrize(
    ("sections", "ahead"),
    [
        ({}, True),
        ({"groups": [{"name": "dev", "count": 1}, PHONES]}, False),
        ({"clock": {"kind": "wall"}, "server": {"rounds": 1, "deadline_s": 1.0}}, False),
    ],
)
def test_rounds_are_called_ahead_in_lockstep_where_nobody_lives(
    tmp_path: Path, sections: dict[str, Any], ahead: bool
) -> None:
    values = {
        "name": "test",
        "task": {"name": "linear"},
        "server": {"rounds": 1},
        "groups": [{"name": "dev", "count": 3}],
    }
    scenario = validate(Scenario, {**values, **sections}, "test")
    (tmp_path / "setup").mkdir()
    prepared = {"examples": [10, 10, 10], "schema": [{"name": "w", "shape": [2]}]}
    assert ProcessConfigs(scenario, tmp_path).server(prepared).calls_ahead is ahead


def test_a_plan_that_would_take_long_is_left_to_muster_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round on the wall clock is planned to last its deadline, which may be years."""
    values = {
        "name": "test",
        "task": {"name": "linear"},
        "clock": {"kind": "wall"},
        "server": {"rounds": 2, "deadline_s": 1e9},
        "groups": [PHONES],
    }
    (tmp_path / "setup").mkdir()
    prepared = {"examples": [10, 10], "schema": [{"name": "w", "shape": [2]}]}
    monkeypatch.setattr("muster.emulator.runs.process_configs.plan", pytest.fail)
    blueprint = ProcessConfigs(validate(Scenario, values, "test"), tmp_path)
    blueprint.write_plan(prepared, lambda done, of: None)
    assert not (tmp_path / "plan.csv").exists()
