"""The energy of calls, its settings, and the carbon intensity of the grid."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.client.life.battery import work_drain
from muster.client.life.connectivity import CELLULAR, ETHERNET, WIFI
from muster.client.life.device_settings import Battery, DeviceSettings, Power
from muster.client.life.effort import effort_of
from muster.client.life.energy import Phases, energy_j
from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.common.lines import LineTrace, LinkModel
from muster.emulator.records.energy import (
    JOULE_UJ,
    PHASE_COLUMNS,
    energy_text,
    joules_text,
    phase_seconds,
    totals_of,
)
from muster.emulator.scenario.energy import GridIntensity, read_intensity
from muster.emulator.scenario.reading import named_files, read_scenario
from muster.emulator.scenario.scenario import Scenario


def scenario(**sections: Any) -> Scenario:
    device = {"examples_per_s": 10.0, "power": {"idle_w": 2.0, "training_w": 3.0}}
    values: dict[str, Any] = {
        "name": "test",
        "task": {"name": "linear", "dimension": 5},
        "server": {"rounds": 2},
        "groups": [{"name": "dev", "count": 3, "device": device}],
        "energy": {},
    }
    return validate(Scenario, {**values, **sections}, "test")


# --- power ---------------------------------------------------------------------------------------


def test_a_battery_has_the_watts_of_its_currents() -> None:
    device = DeviceSettings(battery=Battery())
    network = np.array([WIFI, CELLULAR])
    one = np.ones(2)
    joules = energy_j(device, 4.0, network, Phases(2 * one, 3 * one, 5 * one, 7 * one))
    assert list(joules.compute) == pytest.approx([2 * 0.4 * 4] * 2)
    assert list(joules.radio_down) == pytest.approx([3 * 0.098 * 4, 3 * 0.145 * 4])
    assert list(joules.radio_up) == pytest.approx([5 * 0.470 * 4, 5 * 0.292 * 4])
    assert list(joules.idle) == pytest.approx([7 * 0.020 * 4] * 2)


def test_energy_and_battery_lose_the_same() -> None:
    battery, network = Battery(), np.array([WIFI, CELLULAR])
    effort = effort_of(np.array([3.0, 4.0]), [LinkModel(), LinkModel(up_bps=1e6)], 2e6, 1e6)
    drained = work_drain(battery, np.full(2, 4400.0), network, effort)
    calls = table([0.0, 0.0], list(effort.work_s), [0.0, 0.0])
    seconds = phase_seconds(effort, np.array([0, 1]), calls, network, shared=False)
    joules = energy_j(DeviceSettings(battery=battery), 3.85, network, seconds)
    work = joules.compute + joules.radio_down + joules.radio_up
    assert list(work) == pytest.approx(list(drained * 4400.0 * 3.6 * 3.85))


def test_a_device_on_mains_has_the_watts_of_its_settings() -> None:
    power = Power(idle_w=2.0, training_w=3.0, sending_w=0.5)
    ones = Phases(*np.ones((4, 1)))
    joules = energy_j(DeviceSettings(power=power), 4.0, np.array([ETHERNET]), ones)
    assert [float(phase[0]) for phase in joules] == [3.0, 0.0, 0.5, 2.0]


# --- seconds -------------------------------------------------------------------------------------


def table(at_s: list[float], modelled_s: list[float], kept_s: list[float]) -> pd.DataFrame:
    return pd.DataFrame({"at_s": at_s, "modelled_s": modelled_s, "kept_s": kept_s})


WHOLE = effort_of(np.array([6.0]), [LinkModel(down_bps=8e6, up_bps=4e6)], 1e6, 1.5e6)
"""6 s of training, 1 s of receiving and 3 s of sending."""


@pytest.mark.parametrize(
    ("modelled_s", "shared", "expected"),
    [
        (10.0, False, (6.0, 1.0, 3.0)),
        (5.0, False, (3.0, 0.5, 1.5)),  # it gave up half-way
        (16.0, False, (12.0, 1.0, 3.0)),  # a fault slowed it down
        (16.0, True, (6.0, 1.0, 3.0)),  # it waited for others
        (np.nan, False, (6.0, 1.0, 3.0)),
        (0.0, False, (0.0, 0.0, 0.0)),
    ],
)
def test_the_parts_of_work_follow_from_its_modelled_seconds(
    modelled_s: float, shared: bool, expected: tuple[float, float, float]
) -> None:
    calls = table([0.0], [modelled_s], [20.0])
    found = phase_seconds(WHOLE, np.array([0]), calls, np.array([ETHERNET]), shared)
    assert [float(phase[0]) for phase in found] == pytest.approx([*expected, 20.0])


def test_a_recorded_link_counts_as_it_is_when_the_call_begins(tmp_path: Path) -> None:
    trace = tmp_path / "link.csv"
    trace.write_text("0 8\n10 2\n20 2\n")  # seconds, Mbit/s
    recorded = LineTrace(file=str(trace), direction="up", format="seconds-log")
    line = LinkModel(up_bps=5e6, up_traces=(recorded,))
    whole = effort_of(np.array([0.0]), [line], 0.0, 1e6)
    calls = table([0.0, 10.0], [1.0, 4.0], [0.0, 0.0])
    found = phase_seconds(whole, np.array([0, 0]), calls, np.array([ETHERNET] * 2), shared=False)
    assert list(found.radio_up) == pytest.approx([1.0, 4.0])


# --- sums ----------------------------------------------------------------------------------------


@given(st.lists(st.tuples(*[st.integers(0, 10**12)] * 4, st.booleans()), min_size=1))
def test_the_sums_of_phases_are_the_totals(calls: list[tuple[int, int, int, int, bool]]) -> None:
    energy = pd.DataFrame(calls, columns=[*PHASE_COLUMNS, "counted"])
    energy["total_uj"] = energy[[*PHASE_COLUMNS]].sum(axis="columns")
    totals = totals_of(energy)
    whole = sum(sum(call[:4]) for call in calls)
    assert round(totals["joules"] * JOULE_UJ) == whole
    assert sum(round(each * JOULE_UJ) for each in totals["phases"].values()) == whole
    wasted = sum(sum(call[:4]) for call in calls if not call[4])
    assert round(totals["wasted"] * JOULE_UJ) == wasted
    assert "co2e_g" not in totals


def test_the_text_says_how_much_is_wasted() -> None:
    assert joules_text(1234.0) == "1.234 kJ"
    totals = {"joules": 200.0, "wasted": 50.0, "co2e_g": 0.125}
    assert energy_text(totals) == "200 J, 25.0 % of it wasted; 0.125 g of CO₂ equivalent"
    assert energy_text({"joules": 0.0, "wasted": 0.0}) == "0 J, 0.0 % of it wasted"


# --- the grid ------------------------------------------------------------------------------------


def grid(tmp_path: Path, text: str) -> GridIntensity:
    path = tmp_path / "grid.csv"
    path.write_text(text)
    return read_intensity(str(path))


def test_hours_are_of_the_local_day_and_repeat(tmp_path: Path) -> None:
    found = grid(tmp_path, "hour,gCO2/kWh\n0,100\n12,300\n")
    assert found.local
    begin_h, lasts_h = np.array([1, 11, 23, 35, -1, 0]), np.array([1, 2, 2, 2, 2, 48])
    mean = found.mean(3600.0 * begin_h, 3600.0 * lasts_h)
    assert list(mean) == pytest.approx([100, 200, 200, 200, 200, 200])
    assert list(found.mean(np.array([0.0]), np.array([0.0]))) == pytest.approx([100])


def test_seconds_are_of_the_scenario_and_the_last_goes_on(tmp_path: Path) -> None:
    found = grid(tmp_path, "gCO2/kWh,second\n100,0\n300,60\n")
    assert not found.local
    mean = found.mean(np.array([0.0, 30.0, 1e6]), np.array([60.0, 60.0, 60.0]))
    assert list(mean) == pytest.approx([100, 200, 300], rel=1e-4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"line 1: expected a column 'gCO2/kWh'"),
        ("hour,gCO2/kWh\n", r"has no row"),
        ("hour,kgCO2/kWh\n0,1\n", r"line 1: expected a column 'gCO2/kWh'.*found hour, kgCO2/kWh"),
        ("minute,gCO2/kWh\n0,1\n", r"a column 'hour'"),
        ("hour,second,gCO2/kWh\n0,0,1\n", r"a column 'hour'"),
        ("hour,gCO2/kWh\n0,100\n6,nan\n", r"line 3: expected a number"),
        ("hour,gCO2/kWh\n0,100\n6,-1\n", r"line 3: expected a number from 0 to 10000"),
        ("hour,gCO2/kWh\n0,100\n6,400000\n", r"line 3: expected a number from 0 to 10000"),
        ("hour,gCO2/kWh\n0,100\n6,much\n", r"line 3: expected a number"),
        ("hour,gCO2/kWh\n0,100\n6,\n", r"line 3 has nothing"),
        ("hour,gCO2/kWh\n1,100\n", r"line 2: expected the hour 0 first, found 1"),
        ("hour,gCO2/kWh\n0,100\n6,90\n5,80\n", r"line 4: .*after that of the line before.*found 5"),
        ("hour,gCO2/kWh\n0,100\n6,90\n6,80\n", r"line 4: .*after that of the line before"),
        ("hour,gCO2/kWh\n0,100\n24,90\n", r"line 3: .*before 24, found 24"),
        ("hour,gCO2/kWh\n0,100\n1764178266,90\n", r"line 3: expected a number from 0 to 24"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "grid.csv").write_text(text)
    with pytest.raises(ConfigError, match=f"(?s)energy.*grid.csv.*{message}"):
        scenario(energy={"intensity": str(tmp_path / "grid.csv")})


# --- settings ------------------------------------------------------------------------------------


def test_the_file_is_relative_to_the_scenario_and_one_of_its_inputs(tmp_path: Path) -> None:
    (tmp_path / "grid.csv").write_text("hour,gCO2/kWh\n0,100\n")
    text = scenario().to_toml().replace("[energy]", '[energy]\nintensity = "grid.csv"')
    (tmp_path / "s.toml").write_text(text)
    read = read_scenario(tmp_path / "s.toml")
    assert tmp_path / "grid.csv" in named_files(read.model_dump())


def test_a_missing_file_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"intensity: .*nowhere.csv cannot be read: No such file"):
        scenario(energy={"intensity": "/nowhere.csv"})


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ({"device": {"power": {"idle_w": 1.0, "training_w": 1.0}}}, r"device.examples_per_s: "),
        ({"device": {"examples_per_s": 1.0}}, r"device.power: the devices run on mains"),
        (
            {"device": {"profile": "phone", "power": {"idle_w": 1.0, "training_w": 1.0}}},
            r"power: expected a device on mains",
        ),
    ],
)
def test_devices_without_speed_or_power_are_refused(group: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        scenario(groups=[{"name": "dev", "count": 3, **group}])


def test_expectations_on_energy_need_the_settings(tmp_path: Path) -> None:
    scenario(expect=[{"that": "total(wasted_energy) <= 0.1 * total(energy)"}])
    with pytest.raises(ConfigError, match=r"co2e.* is computed only with energy.intensity"):
        scenario(expect=[{"that": 'co2e("dev") < 1'}])
    with pytest.raises(ConfigError, match=r"energy is computed only with the table \[energy\]"):
        scenario(expect=[{"that": "energy < 1"}], energy=None)


def test_without_the_table_the_settings_are_as_before() -> None:
    text = scenario(energy=None, groups=[{"name": "dev", "count": 3}]).to_toml()
    assert "energy" not in text
    assert "power" not in text
