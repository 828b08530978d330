"""Properties of devices that are looked up by name or position, from the scenario to the device."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from muster.client.life.covariates import Covariates
from muster.client.life.device_settings import DeviceSettings
from muster.client.life.simulation import DeviceSimulation
from muster.common.config import validate
from muster.common.distributions import BUILT_IN
from muster.common.errors import ConfigError
from muster.emulator.fleet.lives import by_group, life_of, members_of
from muster.emulator.scenario.population import population
from muster.emulator.scenario.reading import read_scenario
from muster.emulator.scenario.scenario import Scenario

SPEC = "client,speed,zone,charge,model\n" + "".join(
    f"{client},{speed},{zone},{charge},m\n"
    for client, speed, zone, charge in (
        ("b-0001", 50, -3, 0.25),
        ("a-0000", 7, 2, 0.5),
        ("b-0000", 40, 5.5, 0.75),
    )
)


def cell(column: str, path: str = "spec.csv") -> dict[str, str]:
    return {"kind": "file", "path": path, "column": column}


def scenario(folder: Path, device: dict[str, Any], **more: Any) -> Scenario:
    (folder / "spec.csv").write_text(SPEC)
    values = {
        "name": "spec",
        "task": "linear",
        "server": {"rounds": 1},
        "groups": [{"name": "a", "count": 1}, {"name": "b", "count": 2, "device": device, **more}],
    }
    (folder / "spec.toml").write_text(tomli_w.dumps(values))
    return read_scenario(folder / "spec.toml")


DEVICE = {
    "examples_per_s": cell("speed"),
    "time_zone": cell("zone"),
    "battery": {"initial": cell("charge")},
}


def test_every_property_of_a_device_can_come_from_a_file(tmp_path: Path) -> None:
    read = scenario(tmp_path, DEVICE)
    _, (group, residents) = by_group(read, population(read))
    members = members_of(read, group, residents)
    assert [member.examples_per_s for member in members] == [40, 50]
    assert [member.zone_h for member in members] == [5.5, -3]
    lives = DeviceSimulation(life_of(read, group), 7, [member.being() for member in members])
    assert [lives.row(place)[1] for place in range(2)] == [0.75, 0.25]


def test_a_device_needs_no_file_because_its_values_are_in_its_settings(tmp_path: Path) -> None:
    read = scenario(tmp_path, DEVICE)
    _, (group, residents) = by_group(read, population(read))
    members, life = members_of(read, group, residents), life_of(read, group)
    (tmp_path / "spec.csv").unlink()  # as in a container of devices
    there = type(life).from_json(life.to_json())
    assert DeviceSimulation(there, 7, [members[1].being()]).row(0)[1] == 0.25


def test_a_property_can_grow_with_the_position_in_the_population(tmp_path: Path) -> None:
    by_place = {"kind": "position", "first": 100.0, "step": 10.0}
    read = scenario(tmp_path, {"examples_per_s": by_place})
    _, (group, residents) = by_group(read, population(read))
    speeds = [member.examples_per_s for member in members_of(read, group, residents)]
    assert speeds == [110, 120]


@pytest.mark.parametrize(
    ("device", "said"),
    [
        (
            {"examples_per_s": cell("model")},
            "device.examples_per_s: .*spec.csv, line 2: expected a number .* found 'm'",
        ),
        ({"time_zone": cell("zones")}, "device.time_zone: .*spec.csv has no column 'zones'"),
        (
            {"battery": {"initial": cell("charge", "no.csv")}},
            "device.battery.initial: .*no.csv can",
        ),
    ],
)
def test_what_a_file_lacks_is_refused_by_the_path_of_its_key(
    tmp_path: Path, device: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=rf"groups\[1\]\.{said}"):
        population(scenario(tmp_path, device))


def test_every_built_in_distribution_of_numbers_is_one_for_devices() -> None:
    tables: dict[str, dict[str, Any]] = {
        "constant": {"value": 2.0},
        "file": {"path": "spec.csv", "column": "speed"},
        "log-normal": {"median": 1.0, "sigma": 0.5},
        "normal": {},
        "position": {},
        "uniform": {},
    }
    assert tables.keys() | {"categorical"} == BUILT_IN.keys()
    for kind, table in tables.items():
        value = {"kind": kind, **table}
        read = DeviceSettings.model_validate({"examples_per_s": value, "time_zone": value})
        assert tomllib.loads(tomli_w.dumps(read.model_dump(exclude_none=True)))


@pytest.mark.parametrize("kind", ["file", "position"])
def test_what_is_drawn_before_every_round_cannot_be_looked_up(kind: str) -> None:
    table = cell("speed") if kind == "file" else {"kind": kind}
    with pytest.raises(ConfigError, match=f"x.load: '{kind}' gives a device one value for good"):
        validate(Covariates, {"x": {"load": table}}, "here")
