"""Expectations and audits of runs with real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.run_folders import has_committed

from muster.emulator.run_audit import audit

if TYPE_CHECKING:
    from tests.system.conftest import MakeScenario

    from muster.emulator.scenario.scenario import Scenario

pytestmark = pytest.mark.usefixtures("nothing_left")

MUSTER = [sys.executable, "-c", "from muster.cli.commands import main; main()"]


def command(folder: Path, planned: Scenario) -> list[Any]:
    (folder / "scenario.toml").write_text(planned.to_toml())
    return [*MUSTER, "run", folder / "scenario.toml", "--out", folder / "run", "--quiet"]


def test_a_failed_expectation_gives_status_1_and_keeps_the_run(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    planned = scenario(
        expect=[
            {"that": "participation == 1", "always": True},
            {"that": "total(bytes_up) < 5 * 3 * 4 * 5", "always": True},
        ]
    )
    run = subprocess.run(command(tmp_path, planned), capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stderr
    assert "holds  participation == 1 in every round: participation = 1 in round 5" in run.stdout
    # Five rounds, three devices, five slopes of four bytes: just not less.
    assert (
        "FAILS  total(bytes_up) < 5 * 3 * 4 * 5 in every round: total(bytes_up) = 300 in round 5"
    ) in run.stdout
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["status"] == "completed"
    assert [judged["holds"] for judged in summary["expectations"]] == [True, False]
    assert "Expectations" in (tmp_path / "run/report.html").read_text()
    again = subprocess.run([*MUSTER, "run", "--resume", tmp_path / "run"], check=False,
                           capture_output=True)  # fmt: skip
    assert again.returncode == 1


def test_a_run_that_was_killed_and_resumed_passes_its_audit(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    planned = scenario(
        clock={"round_s": 2.0},
        server={
            "rounds": 150,
            "keep_updates": True,
            "mode": {"kind": "buffered", "k": 2, "concurrency": 3},
        },
        groups=[
            {"name": "quick", "count": 2, "device": {"examples_per_s": 20}},
            {"name": "slow", "count": 2, "device": {"examples_per_s": 5}},
        ],
        expect=[{"that": "total(counted_twice) == 0", "always": True}],
    )
    run = subprocess.Popen(
        command(tmp_path, planned), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while not has_committed(tmp_path / "run", 4):
        assert run.poll() is None
    run.kill()
    run.wait(60)
    status = subprocess.run([*MUSTER, "status", tmp_path / "run"], capture_output=True,
                            text=True, check=False)  # fmt: skip
    assert status.returncode == 1
    assert f"`muster run --resume {tmp_path / 'run'}` continues it" in status.stderr
    killed = audit(tmp_path / "run")
    assert killed.agrees, killed.first
    resumed = subprocess.run([*MUSTER, "run", "--resume", tmp_path / "run", "--quiet"],
                             capture_output=True, text=True, check=False)  # fmt: skip
    assert resumed.returncode == 0, resumed.stderr
    result = audit(tmp_path / "run")
    assert result.agrees, result.first
    made = next(check for check in result.checks if "made again" in check.title)
    assert made.compared > 150
