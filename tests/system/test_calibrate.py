"""Calibration to a run of real processes, in which devices sleep as long as their modelled training
takes, so that their true speeds are known."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import tomli_w
from click.testing import CliRunner

from muster.cli.commands import main
from muster.emulator import run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.system.conftest import MakeScenario

pytestmark = pytest.mark.usefixtures("nothing_left")

SPEEDS = {"quick": 80, "slow": 30}


def test_modelled_speeds_are_recovered_from_a_run_on_the_wall_clock(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    made = scenario(
        clock={"kind": "wall"},
        server={"rounds": 8, "deadline_s": 60.0},
        groups=[
            {"name": name, "count": 2, "device": {"examples_per_s": speed}}
            for name, speed in SPEEDS.items()
        ],
    )
    folder = run(made, out=tmp_path / "run", report=False).folder
    out = tmp_path / "fitted"
    result = CliRunner().invoke(main, ["calibrate", str(folder), "--out", str(out), "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    for device in found["devices"]:
        # Devices never train faster than modelled; a busy machine adds to it.
        assert 0.8 < device["examples_per_s"] / SPEEDS[device["group"]] < 1.005
    assert found["held_out_rounds"] == 2
    assert found["rounds"]["median_error"] < 0.1

    # The fitted devices can be planned.
    values = made.model_dump(exclude_none=True, exclude={"groups"})
    values |= {"clock": {"kind": "rounds"}}
    again = out / "again.toml"
    again.write_text(tomli_w.dumps(values) + (out / "tables.toml").read_text())
    planned = CliRunner().invoke(main, ["plan", str(again), "--out", str(tmp_path / "plan")])
    assert planned.exit_code == 0, planned.output
