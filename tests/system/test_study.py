"""A study over the real fleet, through the command line."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from click.testing import CliRunner, Result

from muster.cli.commands import main
from muster.emulator.records.summary import read_summary
from muster.emulator.runs.running import run

TESTS = Path(__file__).parents[1]

pytestmark = pytest.mark.usefixtures("nothing_left", "tiny")


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tiny_study` can be imported."""
    monkeypatch.syspath_prepend(str(TESTS))


def muster(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["study", *arguments])


def models(folder: Path) -> dict[str, str]:
    """Run to the hash of what it learned."""
    return {
        path.parent.name: json.loads(path.read_text())["model_sha256"]
        for path in (folder / "runs").glob("*/summary.json")
    }


def test_a_study_is_run_and_judged_and_judged_again_without_a_run(tmp_path: Path) -> None:
    folder = tmp_path / "there"
    done = muster("tiny_study:Tiny", "--seeds", "2", "--out", str(folder))
    assert done.exit_code == 0, done.output
    assert "1 of 1 claims hold" in done.stdout
    assert "[4/4] A sgd steps=8 seed 102, " in done.stderr
    (claim,) = json.loads((folder / "claims.json").read_text())
    assert claim["holds"] is True
    assert claim["seeds"] == [101, 102]
    assert claim["interval"][0] > 0
    learned = models(folder)
    assert len(set(learned.values())) == 4
    network = pd.read_csv(folder / "network.csv")
    assert network["folded"].tolist() == [9] * 4
    assert (network["bytes_up"] > 0).all()
    for run_folder in (folder / "runs").iterdir():
        assert not (run_folder / "report.html").exists()
    inside = tmp_path / "inside"
    played = muster(
        "tiny_study:Tiny", "--seeds", "2", "--backend", "memory", "--out", str(inside), "--quiet"
    )
    assert played.exit_code == 0, played.output
    assert models(inside) == learned
    page = (folder / "study.html").read_text()
    assert "eight steps a round learn more than one" in page
    assert page.count("data:image/png;base64,") == 1

    again = muster("--resume", str(folder), "--json")
    assert again.exit_code == 0, again.output
    checks = json.loads((folder / "checks.json").read_text())
    assert json.loads(again.stdout) == {
        "folder": str(folder),
        "name": "tiny",
        "status": "completed",
        "holds": True,
        "claims": [claim],
        "checks": checks,
        "problems": {},
    }

    # The same runs with another judgement: exit status 1, and nothing is run.
    plan = folder / "plan.json"
    plan.write_text(plan.read_text().replace("tiny_study:Tiny", "tiny_study:Wrong"))
    ages = {path: path.stat().st_mtime_ns for path in (folder / "runs").glob("*/ledger.sqlite")}
    wrong = muster("--resume", str(folder))
    assert wrong.exit_code == 1, wrong.output
    assert "0 of 1 claims hold" in wrong.stdout
    assert wrong.stderr == "judging\n"
    assert ages == {path: path.stat().st_mtime_ns for path in ages}


def test_stopped_at_its_first_run_it_goes_on_and_comes_to_the_same(tmp_path: Path) -> None:
    """Two runs at once, each in a process of its own, learn what one by one would."""
    folder = tmp_path / "there"
    arguments = ["study", "tiny_study:Tiny", "--seeds", "1", "--jobs", str(jobs()), "--out"]
    with started([*arguments, str(folder)]) as process:
        assert process.stderr is not None
        while line := process.stderr.readline():
            if "runs, about" in line:
                break
        while not list(folder.glob("runs/*/journal.jsonl")):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert process.returncode == 1
    assert f"Resume it with: muster study --resume {folder}" in said
    assert not (folder / "claims.json").exists()
    done = muster("--resume", str(folder), "--jobs", str(jobs()), "--quiet")
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    assert "1 of 1 claims hold" in done.stdout
    if TYPE_CHECKING:
        from tests import tiny_study
    else:
        import tiny_study

    alone = run(tiny_study.scenario(8, 101), out=tmp_path / "alone", report=False)
    alone.ledger.close()
    assert models(folder)["A-sgd-steps=8-seed-101"] == read_summary(alone.folder)["model_sha256"]


def jobs() -> int:
    return min(2, len(os.sched_getaffinity(0)))


@contextmanager
def started(arguments: list[str]) -> Iterator["subprocess.Popen[str]"]:
    code = "from muster.cli.commands import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
