from pathlib import Path
from typing import Any

import pytest

from muster.common.config import validate
from muster.emulator.blueprint import Blueprint
from muster.emulator.scenario import Scenario

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
    assert Blueprint(scenario, tmp_path).server(prepared).calls_ahead is ahead
