"""The energy of fleets of real processes."""

from pathlib import Path

import pandas as pd
import pytest
import tomli_w

from muster.emulator import run
from muster.emulator.expectations.language import Fact
from muster.emulator.export.exporting import export
from muster.emulator.export.metrics import metric_points
from muster.emulator.records.account import Account
from muster.emulator.records.energy import JOULE_UJ, PHASE_COLUMNS, energy_of
from muster.emulator.records.fact_values import FactValues
from muster.emulator.scenario.reading import read_scenario

GRID = "hour,gCO2/kWh\n0,100\n12,400\n"


def ran(tmp_path: Path, name: str, slow_per_s: float, late: int = 0) -> Path:
    """The folder of a run in which two fast devices wait for a slow one.

    Args:
        late: number of devices that miss every deadline.
    """
    (tmp_path / "grid.csv").write_text(GRID)
    power = {"idle_w": 2.0, "training_w": 3.0, "sending_w": 1.0}

    def group(name: str, speed: float, count: int = 1) -> dict[str, object]:
        device = {"examples_per_s": speed, "power": power, "time_zone": 1.0}
        return {"name": name, "count": count, "device": device, "link": {"up": "1 Mbit/s"}}

    values = {
        "name": name,
        "clock": {"kind": "modelled", "starts_at_h": 11},
        "task": {"name": "digits", "model": "softmax"},
        "training": {"local_steps": 2, "batch_size": 10},
        "server": {"rounds": 2, "deadline_s": 60.0},
        "energy": {"intensity": "grid.csv"},
        "groups": [
            group("fast", 20, 2),
            group("slow", slow_per_s),
            *([group("late", 0.25, late)] if late else []),
        ],
        "expect": [{"that": "total(energy) > total(wasted_energy)"}],
    }
    (tmp_path / f"{name}.toml").write_text(tomli_w.dumps(values))
    return run(read_scenario(tmp_path / f"{name}.toml"), out=tmp_path / name).folder


@pytest.mark.slow
def test_energy_is_power_times_modelled_time_and_slow_devices_cost_others(tmp_path: Path) -> None:
    folder = ran(tmp_path, "slow", 0.5, late=1)
    with Account(folder) as account:
        energy, rounds = energy_of(account), account.rounds
        [size] = account.transfers["bytes"].unique()
        facts = FactValues(account)
        of_fast = facts.of(Fact("energy", "fast"))
        wasted = facts.of(Fact("wasted_energy"))
        tracked = {(p.name, p.round): p.value for p in metric_points(account)}
    assert energy is not None
    assert len(energy) == 8
    assert (energy["total_uj"] == energy[[*PHASE_COLUMNS]].sum(axis="columns")).all()
    first = energy[energy["round"] == 1]

    def total(group: str, column: str) -> float:
        return float(first.loc[first["group"] == group, column].sum()) / JOULE_UJ

    lasts_s = float(rounds["next_s"].iloc[0])
    up_s = 8 * size / 1e6
    for group, train_s in (("slow", 40.0), ("late", 80.0)):
        joules = [3 * train_s, 0.0, up_s, 2 * max(lasts_s, train_s + up_s)]
        assert [total(group, each) for each in PHASE_COLUMNS] == pytest.approx(joules, abs=1e-5)
    # The local time is 12 o'clock.
    assert list(first["co2e_ng"]) == pytest.approx(list(first["total_uj"] / 9), abs=1)
    assert first.loc[first["group"] == "late", "counted"].tolist() == [False]
    assert wasted[1] == total("late", "total_uj")
    assert tracked["energy/wasted", 1] == pytest.approx(wasted[1])
    joules = [tracked["energy/joules", number] for number in (1, 2)]
    assert sum(joules) == pytest.approx(energy["total_uj"].sum() / JOULE_UJ)
    assert tracked["energy/co2e_g", 2] > 0
    assert of_fast[1] == total("fast", "total_uj")
    assert "Energy" in (folder / "report.html").read_text()
    exported = pd.read_csv(export(folder, "csv", tmp_path / "out") / "energy.csv")
    assert exported["total_uj"].sum() == energy["total_uj"].sum()


@pytest.mark.slow
def test_a_slow_client_raises_the_carbon_of_the_same_protocol(tmp_path: Path) -> None:
    """arXiv:2602.00343: slower clients raise the total CO₂ equivalent of a fixed protocol."""
    carbon, waiting = [], []
    for name, speed in (("high", 20.0), ("low", 0.5)):
        with Account(ran(tmp_path, name, speed)) as account:
            energy = energy_of(account)
        assert energy is not None
        assert energy["counted"].all()
        carbon.append(int(energy["co2e_ng"].sum()))
        waiting.append(int(energy.loc[energy["group"] == "fast", "idle_uj"].sum()))
    assert carbon[1] > 2 * carbon[0]
    assert waiting[1] > 2 * waiting[0]
