"""A disk that is full when a run has ended, and output that nobody takes."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from muster.common.errors import RunFailed
from muster.emulator import resume, run
from muster.emulator.results.summary import read_summary

if TYPE_CHECKING:
    from tests.system.conftest import MakeScenario

REFUSED = "cannot be written: the operating system refused:"

pytestmark = pytest.mark.usefixtures("nothing_left")

# No file may grow beyond 100 bytes once the server has ended the run.
LIMITED = """
import resource, sys
from pathlib import Path
from muster.common.errors import RunFailed
from muster.emulator import run

def show(event):
    if event["event"] == "ended":
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))

try:
    run(Path(sys.argv[1]), out=Path(sys.argv[2]), show=show)
except RunFailed as error:
    print(error)
"""


def test_a_run_whose_summary_does_not_fit_on_the_disk_says_so_and_can_be_concluded(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    (tmp_path / "plain.toml").write_text(scenario().to_toml())
    folder = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, tmp_path / "plain.toml", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "the run has ended",
        f"Its summary and report {REFUSED} {folder}/summary.json: File too large",
        f"Free some space, then write them with: muster run --resume {folder}",
    ]
    assert not list(folder.glob("*.tmp"))
    assert read_summary(folder) == {}
    assert resume(folder, report=False).status == "completed"
    assert read_summary(folder)["status"] == "completed"


def test_an_error_of_the_operating_system_fails_the_run_and_nothing_is_left(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    folder = tmp_path / "run"

    def show(event: dict[str, object]) -> None:
        if event["event"] == "server_started":  # before the devices' plan is written
            raise OSError(28, "No space left on device", "somewhere")

    with pytest.raises(RunFailed, match=r"refused: somewhere: No space left on device") as error:
        run(scenario(), out=folder, show=show)
    assert f"muster run --resume {folder}" in str(error.value)


def test_a_run_whose_output_nobody_takes_goes_on_to_its_end(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    (tmp_path / "plain.toml").write_text(scenario().to_toml())
    folder = tmp_path / "run"
    program = "from muster.emulator.cli.entry import main; main()"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", program, "run", tmp_path / "plain.toml", "--out", folder],
            stdout=full,
            stderr=full,
            check=False,
        )
    assert done.returncode == 1
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger:
        assert ledger.execute("SELECT status FROM run").fetchone() == ("completed",)
    assert json.loads((folder / "summary.json").read_text())["status"] == "completed"
    assert (folder / "report.html").exists()
