"""The live page beside real runs: what it serves, whom it refuses, and that its fate is nothing to
the run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from tests.live_page import Page, shown_by, start

from muster.common.clock import WallClock
from muster.common.errors import ConfigError, Unreachable
from muster.emulator.live.app import act
from muster.emulator.live.device_life import device_life
from muster.emulator.live.follower import Follower

if TYPE_CHECKING:
    from pathlib import Path

    from tests.system.conftest import MakeScenario

pytest.importorskip("starlette")
pytestmark = pytest.mark.usefixtures("nothing_left")


def summary(folder: Path) -> Any:
    return json.loads((folder / "summary.json").read_text())


@pytest.fixture(scope="module")
def finished(
    scenario: MakeScenario, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[dict[str, Any]]]:
    """The folder of a run that was watched from its start to its end, and what was seen."""
    folder = tmp_path_factory.mktemp("live")
    planned = folder / "planned.toml"
    planned.write_text(scenario(server={"rounds": 30, "evaluate_every": 5}).to_toml())
    run = start(planned, "--out", str(folder / "run"), "--live")
    assert run.stderr is not None
    frames = list(Page(run.stderr).frames())
    run.communicate(timeout=60)
    assert run.returncode == 0
    return folder / "run", frames


def test_a_page_sees_a_run_to_its_end(
    finished: tuple[Path, list[dict[str, Any]]],
) -> None:
    folder, frames = finished
    sections: dict[str, Any] = {}
    rounds: list[list[Any]] = []
    for frame in frames:
        sections.update(frame.get("sections", {}))
        if series := frame.get("series", {}).get("rounds"):
            rounds = rounds[: series["keeps"]] + series["rows"]
    assert sections["run"]["state"] == "completed"
    assert (sections["run"]["done"], sections["run"]["of"]) == (30, 30)
    assert [row[0] for row in rounds] == list(range(1, 31))
    assert sections["run"]["loss"] == summary(folder)["final"]["loss"]
    [group] = sections["groups"]
    assert (group["name"], group["folded"]) == ("dev", 90)


def test_a_finished_folder_shows_the_same(
    finished: tuple[Path, list[dict[str, Any]]],
) -> None:
    folder, _ = finished
    follower = Follower(folder, WallClock())
    follower.look()
    assert follower.newest is not None
    run = json.loads(follower.newest.sections["run"])
    assert (run["state"], run["done"]) == ("completed", 30)
    assert follower.newest.columns["state"] == "uuu"
    number = follower.newest.number
    follower.look()
    assert follower.newest.number == number  # nothing is new


def test_a_device_has_a_life(finished: tuple[Path, list[dict[str, Any]]]) -> None:
    ledger = finished[0] / "ledger.sqlite"
    life = device_life(ledger, "dev-0001")
    assert (life["group"], life["sessions"]) == ("dev", 1)
    assert [call["fate"] for call in life["calls"]] == ["folded"] * 30
    with pytest.raises(ConfigError, match="no device 'dev-9'"):
        device_life(ledger, "dev-9")


def test_nothing_can_be_asked_of_a_run_that_is_over(
    finished: tuple[Path, list[dict[str, Any]]],
) -> None:
    with pytest.raises(Unreachable):
        act(finished[0], "pause", {})


def test_only_the_page_itself_gets_in(finished: tuple[Path, list[dict[str, Any]]]) -> None:
    with shown_by("live", str(finished[0])) as page:
        assert page.ask("")[0] == 200
        assert page.ask("page.js")[0] == 200
        assert page.ask("devices/dev-0000")[0] == 200
        assert page.ask("devices/dev-9")[0] == 404
        assert page.ask("../app.py")[0] == 404
        assert page.ask("", token="wrong")[0] == 403
        assert page.ask("", Host="example.org")[0] == 403
        assert page.ask("", Origin="http://example.org")[0] == 403
        assert page.ask("actions/stop", {})[0] == 403
        assert page.ask("actions/stop", {}, X_Muster_Operator=page.token)[0] == 403
        allowed = {"X_Muster_Operator": page.operator}
        assert page.ask("actions/stop", {}, **allowed)[0] == 409  # the run is over
        assert page.ask("actions/remove", {}, **allowed)[0] == 404
        assert page.ask("actions/heal", [], **allowed)[0] == 400
        assert page.ask("actions/inject", {"kind": 3}, **allowed)[0] == 409


@pytest.mark.parametrize(
    "fate", [pytest.param(signal.SIGKILL, marks=pytest.mark.soak), signal.SIGSTOP]
)
def test_a_run_goes_on_whatever_happens_to_its_page(
    fate: signal.Signals, scenario: MakeScenario, tmp_path: Path
) -> None:
    planned = tmp_path / "planned.toml"
    planned.write_text(scenario(server={"rounds": 100}).to_toml())
    run = start(planned, "--out", str(tmp_path / "run"), "--live")
    assert run.stderr is not None
    frames = Page(run.stderr).frames()
    for frame in frames:
        if frame.get("sections", {}).get("run", {}).get("done", 0) >= 1:
            break
    children = subprocess.run(
        ["pgrep", "-P", str(run.pid), "-f", "muster.emulator.live"],
        capture_output=True,
        text=True,
        check=True,
    )
    [page] = map(int, children.stdout.split())
    os.kill(page, fate)
    run.communicate(timeout=200)
    assert run.returncode == 0
    undisturbed = tmp_path / "undisturbed"
    other = start(planned, "--out", str(undisturbed))
    other.communicate(timeout=200)
    assert summary(tmp_path / "run")["model_sha256"] == summary(undisturbed)["model_sha256"]


def test_the_page_of_a_run_that_gets_ctrl_c_shows_how_it_ends(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    planned = tmp_path / "planned.toml"
    planned.write_text(scenario(server={"rounds": 100_000}).to_toml())
    run = start(planned, "--out", str(tmp_path / "run"), "--live", new_session=True)
    assert run.stderr is not None
    interrupted = False
    shown: dict[str, Any] = {}
    for frame in Page(run.stderr).frames():
        shown = frame.get("sections", {}).get("run", shown)
        if not interrupted and shown.get("done", 0) >= 1:
            interrupted = True
            os.killpg(run.pid, signal.SIGINT)  # as a terminal does it
    run.communicate(timeout=60)
    assert interrupted
    assert shown["state"] == summary(tmp_path / "run")["status"] == "stopped"


def test_a_fault_that_the_page_injects_is_observed_and_the_run_is_stopped(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    planned = tmp_path / "planned.toml"
    planned.write_text(scenario(server={"rounds": 100_000}).to_toml())
    run = start(planned, "--out", str(tmp_path / "run"), "--live")
    assert run.stderr is not None
    page = Page(run.stderr)
    allowed = {"X_Muster_Operator": page.operator}
    asked = stopped = False
    for frame in page.frames():
        sections = frame.get("sections", {})
        if not asked and sections.get("run", {}).get("done", 0) >= 1:
            asked = True
            wanted = {"target": {"names": ["dev-0001"]}, "for_s": 0.5}
            status, said = page.ask("actions/pause", wanted, **allowed)
            assert (status, json.loads(said)) == (200, {"done": "pause-1 acts on 1 target"})
        for fault in sections.get("faults", []):
            if fault["state"] in ("healed", "verified") and not stopped:
                assert (fault["targets"], fault["do"]) == (["dev-0001"], "pause")
                assert fault["seen"]
                stopped = True
                assert page.ask("actions/stop", {}, **allowed)[0] == 200
    run.communicate(timeout=60)
    assert stopped
    assert summary(tmp_path / "run")["status"] == "stopped"
