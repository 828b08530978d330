"""The task of a scenario whose devices' covariates shape their data."""

from pathlib import Path

import numpy as np
import pytest
import tomli_w

from muster.client.life.settings import PackMember
from muster.common.errors import ConfigError
from muster.emulator.fleet.lives import task_of
from muster.emulator.fleet.packs import DeviceFolders
from muster.emulator.launch import process_configs
from muster.emulator.launch.process_configs import ProcessConfigs
from muster.emulator.planning import plan
from muster.emulator.scenario.population import population
from muster.emulator.scenario.reading import read_scenario
from muster.emulator.scenario.scenario import Scenario
from muster.tasks.tasks import read_task

NORMAL = {"kind": "normal", "mean": 0.0, "sd": 1.0}
SHAPED = {
    "name": "shaped",
    "task": {"name": "logistic", "dimension": 2, "covariates": ["age", "os=15", "speed"]},
    "server": {"rounds": 2},
    "groups": [
        {"name": "a", "count": 3, "covariates": {"z": {"age": NORMAL}}},
        {
            "name": "b",
            "count": 4,
            "covariates": {"z": {"os": {"kind": "categorical", "values": ["14", "15"]}}},
        },
        {"name": "c", "count": 2, "covariates": {"z": {"age": NORMAL, "speed": NORMAL}}},
    ],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "shaped.toml"
    path.write_text(tomli_w.dumps(SHAPED))
    return path


def test_columns_are_the_devices_own_and_0_where_they_lack_the_covariate(path: Path) -> None:
    scenario = read_scenario(path)
    residents = population(scenario)
    task = task_of(scenario, residents)
    ages = [resident.z.get("age", 0.0) for resident in residents]
    assert task.column("age", 9).tolist() == ages
    assert np.count_nonzero(ages) == 5
    expected = [float(resident.z.get("os") == "15") for resident in residents]
    assert task.column("os=15", 9).tolist() == expected
    assert task.column("speed", 9)[:7].tolist() == [0] * 7


def test_every_process_is_given_the_same_task(path: Path, tmp_path: Path) -> None:
    made = ProcessConfigs(read_scenario(path), tmp_path)
    (tmp_path / "setup").mkdir()
    prepared = {"examples": [50] * 9, "schema": [{"name": "output.weight", "shape": [1, 2]}]}
    server = made.server(prepared)
    folders = DeviceFolders("devices", "credentials")
    packs = list(made.packs(server, "127.0.0.1:1", lambda group: None, folders))
    texts = {made.nursery().task, server.task, *(pack.task for pack in packs)}
    assert texts == {made.task.to_json()}
    [text] = texts
    here, there = made.task.open(9, seed=0), read_task(text).open(9, seed=0)
    for pack in packs:
        device: PackMember = pack.devices[0]
        assert here.client(device.index).y.tobytes() == there.client(device.index).y.tobytes()
    # What was given stands in no scenario.
    assert "age" in made.scenario.to_toml()
    assert read_scenario_of(made.scenario, tmp_path) == made.scenario


def read_scenario_of(scenario: Scenario, folder: Path) -> Scenario:
    path = folder / "resolved.toml"
    path.write_text(scenario.to_toml())
    return read_scenario(path)


def test_a_plan_needs_counts_alone(path: Path) -> None:
    speeds = ["groups.0.device.examples_per_s=10.0"]
    assert plan(read_scenario(path, speeds)).groups[0].devices == 3


def test_a_covariate_that_no_group_has_is_refused_with_those_that_there_are(path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        read_scenario(path, ['task.covariates=["os", "age", "wealth"]'])
    assert [line.strip() for line in str(error.value).splitlines()[1:]] == [
        f"task.covariates: no group has a covariate Z {name!r}; there are: age, os=14, os=15, speed"
        for name in ("os", "wealth")
    ]


def test_a_task_that_fits_in_no_message_is_refused(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_configs, "CHUNK_BYTES", 500)
    with pytest.raises(ConfigError, match=r"of 9 devices make a task of [56]\d\d bytes, .* 500;"):
        ProcessConfigs(read_scenario(path), tmp_path)
