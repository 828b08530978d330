from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from muster.common.config import validate
from muster.emulator.fleet.packs import DeviceFolders
from muster.emulator.launch import doctor
from muster.emulator.launch.process_configs import ProcessConfigs
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
    monkeypatch.setattr("muster.emulator.launch.process_configs.plan", pytest.fail)
    blueprint = ProcessConfigs(validate(Scenario, values, "test"), tmp_path)
    blueprint.write_plan(prepared, lambda done, of: None)
    assert not (tmp_path / "plan.csv").exists()


@pytest.mark.parametrize("per_gpu", [1, 2])
def test_no_gpu_of_a_machine_gets_more_processes_than_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, per_gpu: int
) -> None:
    gpus = 3
    monkeypatch.setattr(doctor, "gpus", lambda: gpus)
    counts = {"a": 1, "cpu": 2, "b": gpus * per_gpu - 1}
    groups = [
        {
            "name": name,
            "count": count,
            "device": {"torch_device": "cpu" if name == "cpu" else "auto"},
        }
        for name, count in counts.items()
    ]
    values = {
        "name": "test",
        "task": {"name": "linear"},
        "server": {"rounds": 1},
        "groups": groups,
        "launch": {"devices_per_gpu": per_gpu},
    }
    scenario = validate(Scenario, values, "test")
    doctor.require(scenario)
    (tmp_path / "setup").mkdir()
    made = ProcessConfigs(scenario, tmp_path)
    examples = [10] * scenario.devices
    server = made.server({"examples": examples, "schema": [{"name": "w", "shape": [2]}]})
    packs = made.packs(server, "127.0.0.1:1", lambda group: None, DeviceFolders("", ""))
    assert Counter(pack.torch_device for pack in packs) == Counter(
        {"cpu": 2, **{f"cuda:{index}": per_gpu for index in range(gpus)}}
    )
