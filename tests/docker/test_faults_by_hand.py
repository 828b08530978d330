"""Faults that are injected by hand into a run in containers, and what the commands that look at a
run say of it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.system.test_faults import STATES, courses
from tests.system.test_manual_faults import Running, muster

from muster.common.config import validate
from muster.emulator import heal, inject
from muster.emulator.scenario.scenario import Scenario

pytestmark = [pytest.mark.timeout(400), pytest.mark.usefixtures("images")]

WATCH = [sys.executable, "-c", "from muster.cli.entry import main; main()", "watch"]


def endless() -> Scenario:
    """A run that goes on until somebody stops it."""
    values: dict[str, Any] = {
        "name": "by-hand",
        "task": {"name": "linear", "dimension": 5, "heterogeneity": 1.0},
        "server": {"rounds": 1_000_000, "evaluate_every": 1_000_000},
        "groups": [{"name": "dev", "count": 2, "link": {"profile": "unshaped"}}],
    }
    return validate(Scenario, values, "test")


def works(done: "subprocess.CompletedProcess[str]") -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """The run in `tmp_path / "run"`, after some rounds; it is stopped at the end at the latest."""
    running = Running(endless(), tmp_path / "run", backend="docker")
    try:
        running.wait_for(event="round_committed", round=3)
        yield running
    finally:
        muster("stop", tmp_path / "run")
        running.join()


def test_faults_by_hand_strike_containers_and_are_told(running: Running, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    watching = subprocess.Popen([*WATCH, str(folder)], stdout=subprocess.PIPE, text=True)

    crash = ["inject", folder, "crash", "--target", "dev-0001", "--for-s", "0.5"]
    assert works(muster(*crash)) == "crash-1: crash on dev-0001, for 0.5 s\n"
    running.wait_for(event="fault_verified", fault="crash-1")

    # 2 ms in every 100 ms are less than a device needs for its rounds, however busy the machine is.
    limit = ["cpu-limit", "share=0.02", "--target", "dev-0000", "--for-s", "50"]
    works(muster("inject", folder, *limit))
    slow = running.wait_for(event="fault_observed", fault="cpu-limit-1")
    assert slow["seen"].startswith("held back, at ")
    assert "devices: 2 of 2 present" in works(muster("status", folder))
    assert works(muster("heal", folder, "cpu-limit-1")) == "healed: cpu-limit-1\n"
    running.wait_for(event="fault_verified", fault="cpu-limit-1")

    works(muster("pause", folder, "dev-0001", "--for-s", "50"))
    running.wait_for(event="fault_observed", fault="pause-1", seen="process stopped")
    assert works(muster("unpause", folder)) == "healed: pause-1\n"
    running.wait_for(event="fault_verified", fault="pause-1")

    inject(folder, "partition", target={"count": 1}, for_s=50, settings={"way": "up"})
    running.wait_for(event="fault_observed", fault="partition-1")
    assert heal(folder, "partition-1") == ["partition-1"]
    running.wait_for(event="fault_verified", fault="partition-1")

    works(muster("stop", folder))
    done = running.join()
    watched, _ = watching.communicate(timeout=60)
    assert "stopped: the operator asked for it" in watched
    names = ["crash-1", "cpu-limit-1", "pause-1", "partition-1"]
    assert courses(done) == dict.fromkeys(names, STATES)
    assert (done.status, done.summary["vacuous"]) == ("stopped", [])
    assert not list(done.ledger.events("died"))
    works(muster("report", folder))
    page = (folder / "report.html").read_text()
    for name in names:
        assert f"fault {name}: healed" in watched
        assert name in page
    assert "the journal" in works(muster("audit", folder))
