"""Calibration: recorded rounds whose true speeds and links are known, and what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from muster.cli.commands import main
from muster.common import seeds
from muster.emulator.fleet.lives import by_group, members_of
from muster.emulator.scenario.population import population
from muster.emulator.scenario.reading import read_scenario
from muster.laboratory.calibration.calibrating import Agreement, calibrate, recorded_in
from muster.laboratory.calibration.files import write_files
from muster.laboratory.calibration.fitting import spread_of
from muster.laboratory.calibration.runs import recorded_in_run
from muster.laboratory.calibration.view import describe

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.emulator.conftest import RunFolder

SPEEDS = np.geomspace(20, 400, 12)
DOWN_BPS, UP_BPS, RTT_S = 8e6, 2e6, 0.06

WALL = """
name = "measured"
[clock]
kind = "wall"
[training]
local_epochs = 2
[[groups]]
name = "phones"
count = 3
"""


def made_up(rounds: int = 40, noise: float = 0.03) -> pd.DataFrame:
    """Rounds of devices that work exactly as the model says, but for some noise; some rounds of a
    device take ten times as long."""
    rng = seeds.stream(5, "made-up rounds")
    rows = []
    for round in range(rounds):
        for place, speed in enumerate(SPEEDS):
            examples, size = int(rng.integers(50, 500)), int(rng.integers(20_000, 400_000))
            factor = np.exp(noise * rng.normal(size=3))
            train_s = examples / speed * factor[0] * (10 if rng.random() < 0.02 else 1)
            down_s, up_s = 8 * size / DOWN_BPS * factor[1], 8 * size / UP_BPS * factor[2]
            rows.append(
                {
                    "device": f"phone {place}",
                    "group": "phones",
                    "round": round,
                    "examples": examples,
                    "train_s": train_s,
                    "bytes_down": size,
                    "down_s": down_s,
                    "bytes_up": size,
                    "up_s": up_s,
                    "work_s": train_s + down_s + up_s + 2 * RTT_S,
                }
            )
    table = pd.DataFrame(rows)
    return table.assign(round_s=table.groupby("round")["work_s"].transform("max") + 0.01)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rounds.csv"


def test_known_speeds_and_links_are_recovered_and_predict_other_rounds(file: Path) -> None:
    made_up().to_csv(file, index=False)
    found = calibrate(recorded_in([file]), seed=1, held_out=0.25)
    devices = found.devices.loc[[f"phone {place}" for place in range(len(SPEEDS))]]
    assert devices["examples_per_s"].to_numpy() == pytest.approx(SPEEDS, rel=0.03)
    assert devices["down_bps"].to_numpy() == pytest.approx(DOWN_BPS, rel=0.03)
    assert devices["up_bps"].to_numpy() == pytest.approx(UP_BPS, rel=0.03)
    assert devices["rtt_s"].to_numpy() == pytest.approx(RTT_S, rel=1e-6)
    assert found.paces == {"phones": pytest.approx(0.03, rel=0.2)}
    assert found.fitted_rounds == 30
    assert found.work.error < 0.04
    assert found.rounds.error < 0.04
    assert found.work.distance <= 0.05
    assert not found.shortcomings
    assert found.server_s == pytest.approx(0.01)
    assert "The model describes these rounds" in describe(found)


def test_the_pace_of_devices_is_recovered_and_predicts_how_far_rounds_differ(file: Path) -> None:
    made_up(noise=0.3).to_csv(file, index=False)
    found = calibrate(recorded_in([file]), seed=1, held_out=0.25)
    assert found.paces == {"phones": pytest.approx(0.3, rel=0.15)}
    assert found.work.distance < 0.1
    fixed = Agreement(found.work.observed, found.work.predicted[:, None])
    assert found.work.distance < fixed.distance


def test_without_noise_held_out_rounds_are_predicted_exactly(file: Path) -> None:
    table = made_up(noise=0.0)
    table[table["work_s"] < 4 * table["work_s"].median()].drop(columns="round_s").to_csv(
        file, index=False
    )
    found = calibrate(recorded_in([file]), seed=1, held_out=0.25)
    assert found.work.error == pytest.approx(0.0, abs=1e-9)
    assert found.rounds.error == pytest.approx(0.0, abs=1e-9)
    assert any("no column 'round_s'" in note for note in found.notes)


def test_training_that_does_not_follow_the_examples_is_told(file: Path) -> None:
    table = made_up()
    rng = seeds.stream(6, "made-up rounds")
    train_s = np.exp(3.0 * rng.normal(size=len(table)))
    table["work_s"] += train_s - table["train_s"]
    table.assign(train_s=train_s).drop(columns="round_s").to_csv(file, index=False)
    found = calibrate(recorded_in([file]), seed=1, held_out=0.25)
    assert found.work.error > 0.3
    assert found.paces == {"phones": 2.0}  # the most that a scenario may say
    assert "The model does not describe these rounds: the median error of round" in describe(found)


def test_the_seed_decides_which_rounds_are_held_out(file: Path) -> None:
    made_up().to_csv(file, index=False)
    recorded = recorded_in([file])
    held = [set(calibrate(recorded, seed, 0.25).held_out["round"]) for seed in (1, 1, 2)]
    assert held[0] == held[1] != held[2]
    assert len(held[0]) == 10


def test_steps_and_batches_are_examples(file: Path) -> None:
    table = made_up()
    table = table.assign(steps=table["examples"], batch_size=4).drop(columns="examples")
    table.to_csv(file, index=False)
    found = calibrate(recorded_in([file]), seed=1, held_out=0.25)
    assert sorted(found.devices["examples_per_s"]) == pytest.approx(4 * SPEEDS, rel=0.03)


def test_several_files_are_one_recording_of_the_same_devices(tmp_path: Path) -> None:
    table = made_up(rounds=8)
    for half, name in ((table["round"] < 4, "one.csv"), (table["round"] >= 4, "two.csv")):
        table[half].assign(round=table["round"] % 4).to_csv(tmp_path / name, index=False)
    found = calibrate(recorded_in([tmp_path / "one.csv", tmp_path / "two.csv"]), 1, 0.25)
    assert found.fitted_rounds == 6
    assert len(found.devices) == len(SPEEDS)


def test_a_log_normal_is_doubtful_for_two_kinds_of_devices() -> None:
    rng = seeds.stream(7, "devices")
    alike = pd.Series(np.exp(0.4 * rng.normal(size=40)))
    assert spread_of(alike).sigma == pytest.approx(0.4, rel=0.3)
    assert not spread_of(alike).doubtful
    assert spread_of(pd.concat([alike, 100 * alike])).doubtful
    assert spread_of(pd.Series([2.0])).sigma == 0


def test_a_scenario_takes_the_fitted_devices_from_the_files(file: Path, tmp_path: Path) -> None:
    made_up().to_csv(file, index=False)
    found = calibrate(recorded_in([file]), seed=1, held_out=0.25)
    out = tmp_path / "fitted"
    write_files(out, found)
    assert (out / "quantiles.png").read_bytes().startswith(b"\x89PNG")
    assert len(pd.read_csv(out / "held-out.csv")) == len(found.held_out)
    head = 'name = "again"\n[task]\nname = "linear"\n[server]\nrounds = 2\n'
    for name in ("tables.toml", "drawn.toml"):
        (out / "again.toml").write_text(head + (out / name).read_text())
        scenario = read_scenario(out / "again.toml")
        [(group, residents)] = by_group(scenario, population(scenario))
        assert group.device.speed_sigma == pytest.approx(found.paces["phones"], rel=0.01)
        members = members_of(scenario, group, residents)
        speeds = [member.examples_per_s for member in members]
        assert len(speeds) == len(SPEEDS)
        if name == "tables.toml":
            assert speeds == pytest.approx(found.devices["examples_per_s"].tolist(), rel=1e-4)
            assert [m.line.down_bps for m in members] == pytest.approx(
                found.devices["down_bps"].tolist(), rel=1e-4
            )
        assert np.median([m.line.rtt_s for m in members]) == pytest.approx(RTT_S, rel=0.01)


def record(run: RunFolder, scenario: str = WALL, rounds: int = 10) -> Path:
    """A run of three devices: a and b have links, c sends its update in its answer."""
    run.scenario(scenario)
    run.clients("a", "b", "c")
    for number in range(1, rounds + 1):
        began_s = run.time - 1_750_000_000.0
        run.round(
            {"a": "folded", "b": "folded", "c": "folded"},
            sent={name: {"train_s": s} for name, s in (("a", 2.0), ("b", 1.0), ("c", 0.5))},
            seconds=4.5,
        )
        for name, train_s in (("a", 2.0), ("b", 1.0)):
            run.transfer(name, "down", began_s + 0.1, 0.1, 0.5)
            run.transfer(name, "up", began_s + 0.7 + train_s, 0.0, 1.0)
        run.ledger.execute(
            "UPDATE answers SET at = ? WHERE client = 'c' AND round = ?",
            (1_750_000_000.0 + began_s + 0.6, number),
        )
    return run.commit()


def test_a_run_on_the_wall_clock_tells_speeds_and_links(run: RunFolder) -> None:
    recorded = recorded_in_run(record(run))
    devices = calibrate(recorded, seed=1, held_out=0.25).devices
    # Each has 100 examples, and goes through them twice.
    assert devices["examples_per_s"].tolist() == pytest.approx([100, 200, 400])
    assert devices.loc[["a", "b"], "down_bps"].tolist() == pytest.approx([16e6, 16e6])
    assert devices.loc[["a", "b"], "up_bps"].tolist() == pytest.approx([8e6, 8e6])
    # 0.2 s are neither training nor transfers, and 0.1 s for c.
    assert devices["rtt_s"].tolist() == pytest.approx([0.1, 0.1, 0.05], abs=1e-5)
    assert recorded.round_s.tolist() == [4.5] * 10


def test_a_device_with_a_modelled_speed_trains_as_long_as_it_sleeps(run: RunFolder) -> None:
    scenario = WALL + "[groups.device]\nexamples_per_s = 77.0\n"
    devices = calibrate(recorded_in_run(record(run, scenario)), 1, 0.25).devices
    # From the end of the download, after 0.7 s, to the beginning of the upload.
    assert devices["examples_per_s"].tolist() == pytest.approx([100, 200, 200 / 0.6], rel=1e-5)


def test_updates_and_rounds_that_did_not_end_well_are_left_out(run: RunFolder) -> None:
    record(run)
    run.round({"a": "folded", "b": "late: deadline"}, seconds=30.0)
    recorded = recorded_in_run(run.commit())
    assert len(recorded.round_s) == 10
    assert "1 updates of" in recorded.notes[0]
    assert "1 rounds of" in recorded.notes[1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("[clock]\nkind = 'rounds'", "ran in lockstep"),
        ("[clock]\nkind = 'scaled'\nscale = 10.0", "ran on a scaled clock"),
        (
            "[clock]\nkind = 'wall'\n[server.mode]\nkind = 'buffered'\nmax_staleness = 3",
            "ran in a mode in which work outlives its round",
        ),
    ],
)
def test_runs_whose_durations_say_nothing_are_refused(
    run: RunFolder, change: str, said: str
) -> None:
    folder = record(run, WALL.replace('[clock]\nkind = "wall"', change))
    result = CliRunner().invoke(main, ["calibrate", str(folder)])
    assert result.exit_code == 2
    assert said in result.stderr


def row(**cells: object) -> dict[str, object]:
    return {"device": "a", "round": 1, "examples": 10, "train_s": 1.0, **cells}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row(speed=3)], "unknown column 'speed'; expected device, round, train_s"),
        ([{"device": "a", "round": 1, "examples": 3}], "has no column 'train_s'"),
        ([{"device": "a", "round": 1, "train_s": 3}], "has no column 'steps'; expected it, or a"),
        ([row(steps=3)], "has columns 'examples' and 'steps'"),
        ([row(bytes_up=3)], "has no column 'up_s'"),
        (
            [row(), row(device="b", train_s=-1.0)],
            "line 3: expected a number from 1e-06",
        ),
        ([row(train_s="nan")], "line 2: expected a number from"),
        ([row(train_s="inf")], "line 2: expected a number from"),
        ([row(train_s="fast")], "found 'fast'"),
        ([row(examples=0)], "line 2: expected a number from 1 to"),
        ([row(round="")], "line 2 has nothing in column 'round'"),
        ([row(group="a/b")], "line 2: expected letters, digits"),
        ([row(), row()], "line 3: device 'a' has more than one row in round '1'"),
        ([row(round_s=2), row(device="b", round_s=3)], "line 3: expected the same round_s in all"),
        (
            [row(round=n) for n in range(7)],
            "expected at least 8 rounds, of which some",
        ),
        ([], "expected at least 8 rounds"),
        ([row(round=n, device=n) for n in range(9)], "expected devices that trained in several"),
    ],
)
def test_files_with_mistakes_are_refused(
    file: Path, rows: list[dict[str, object]], said: str
) -> None:
    pd.DataFrame(rows or None, columns=None if rows else list(row())).to_csv(file, index=False)
    out = file.with_name("out")
    result = CliRunner().invoke(main, ["calibrate", str(file), "--out", str(out)])
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert not out.exists()


def test_the_command_prints_json_and_fills_its_folder(file: Path) -> None:
    made_up(rounds=8).to_csv(file, index=False)
    out = file.with_name("out")
    result = CliRunner().invoke(main, ["calibrate", str(file), "--out", str(out), "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["good"]
    assert found["held_out_rounds"] == 2
    assert {path.name for path in out.iterdir()} == {
        "devices-phones.csv", "drawn.toml", "held-out.csv", "quantiles.png", "tables.toml",
    }  # fmt: skip
    again = CliRunner().invoke(main, ["calibrate", str(file), "--out", str(out)])
    assert again.exit_code == 2
    assert "is not an empty folder" in again.stderr


@pytest.mark.parametrize("share", ["nan", "0", "0.51", "-1", "inf"])
def test_a_share_that_holds_out_nothing_or_too_much_is_refused(file: Path, share: str) -> None:
    made_up(rounds=8).to_csv(file, index=False)
    result = CliRunner().invoke(main, ["calibrate", str(file), f"--held-out={share}"])
    assert result.exit_code == 2
    assert "--held-out: expected a share from 0.05 to 0.5, found" in result.stderr


def test_a_recording_counts_once(file: Path) -> None:
    made_up(rounds=8).to_csv(file, index=False)
    result = CliRunner().invoke(main, ["calibrate", str(file), str(file)])
    assert result.exit_code == 2
    assert "expected every recording once" in result.stderr
