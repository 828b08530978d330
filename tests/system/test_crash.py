"""Kill −9, again and again: the result is that of the run without."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from muster.chaos.run_processes import RunProcess, kill_process, run_processes
from muster.client.device.memory import Memory
from muster.common import seeds
from muster.common.errors import RunFailed
from muster.emulator import Run, run
from muster.emulator.scenario.scenario import Scenario

if TYPE_CHECKING:
    from tests.system.conftest import MakeScenario

pytestmark = pytest.mark.usefixtures("nothing_left")

SOON_S = 0.005
"""Seconds between two reads of the journal in runs of which this file kills processes. With the
default, it could learn of a certain round when a fast run has already ended."""

KILLS = int(os.environ.get("MUSTER_KILLS", "3"))
"""Of a run; `make soak` has 20. The storm of the soak tests has as many, half of them in starts."""


class Killer:
    """Kills processes with SIGKILL at instants drawn from a named stream.

    The journal is shown in handfuls, some milliseconds late, so between two events of it the victim
    may be anywhere: training, uploading, folding, committing.
    """

    def __init__(self, folder: Path, victims: str, kills: int, events_between: int) -> None:
        self._most = events_between
        self._folder = folder
        self._victims = victims
        self._draws = seeds.stream(1, "kills", victims)
        self._wait = 0
        self.left = kills

    def show(self, event: dict[str, Any]) -> None:
        if event["event"] in ("died", "restarted", "server_started"):
            self._wait = int(self._draws.integers(3, self._most))
        self._wait -= 1
        if self._wait == 0 and self.left and event["event"] != "ended":
            self._kill()
            self._wait = int(self._draws.integers(3, self._most))

    def _kill(self) -> None:
        victims = [each for each in run_processes(self._folder) if self._is_victim(each)]
        if victims and kill_process(victims[self._draws.integers(len(victims))], self._folder):
            self.left -= 1

    def _is_victim(self, process: RunProcess) -> bool:
        wanted = {"server": ["server"], "devices": ["device"]}
        return process.part in wanted.get(self._victims, ["server", "gateway", "device"])


def assert_every_contribution_counts_once(done: Run, scenario: Scenario) -> None:
    rounds, devices = scenario.server.rounds, scenario.devices
    committed = [event["round"] for event in done.ledger.events("round_committed")]
    assert committed == list(range(1, rounds + 1))
    evaluated = [event["version"] for event in done.ledger.events("evaluated")]
    assert evaluated == list(done.ledger.evaluations["version"])
    for way in ("bytes_up", "bytes_down"):  # also of rounds that a killed server could not tell
        told = sum(event[way] for event in done.ledger.events("round_committed", "ended"))
        assert told == done.summary[way]
    folded = done.ledger.contributions.query("outcome == 'folded'")
    assert len(folded) == rounds * devices
    assert not folded.duplicated(["round", "client"]).any()
    assert list(done.ledger.rounds["round"]) == list(range(1, rounds + 1))
    weights = folded.groupby("round")["weight"].sum().to_numpy(np.float64)
    np.testing.assert_array_equal(weights, done.ledger.rounds["weight_sum"].to_numpy(np.float64))
    for client in done.ledger.clients["client"]:
        *_, held = Memory(done.folder / "devices" / client).held
        # A device's own state agrees: it trained once for every round, however often it was asked.
        assert (held.round, held.after.trained) == (rounds, rounds)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("size", "victims"),
    [
        ("small", "server"),
        pytest.param("small", "devices", marks=pytest.mark.soak),
        pytest.param("large", "server", marks=pytest.mark.soak),
        pytest.param("large", "devices", marks=pytest.mark.soak),
        pytest.param("packed", "server", marks=pytest.mark.soak),
        ("packed", "devices"),
        ("control", "devices"),
    ],
)
def test_kills_change_nothing(
    scenario: MakeScenario, tmp_path: Path, victims: str, size: str
) -> None:
    rounds, between = {
        "small": (20, 60),
        "large": (3, 15),
        "packed": (20, 100),
        "control": (20, 60),
    }[size]
    rounds *= KILLS
    linear = {"name": "linear", "dimension": 5, "heterogeneity": 1.0}
    large = {"name": "digits", "model": "mlp", "hidden": [4300]}
    # What top-k leaves out of an update is state that must survive too.
    feedback = {"compression": {"kind": "top-k", "ratio": 0.4}}
    packs = {"name": "dev", "count": 6, "devices_per_process": 3, "link": feedback}
    planned = scenario(
        task=large if size == "large" else linear,
        groups=[packs if size == "packed" else {"name": "dev", "count": 3}],
        # With scaffold both ends have a control variate that must survive.
        server={
            "rounds": rounds,
            "evaluate_every": 20,
            "aggregator": "scaffold" if size == "control" else "agnostic",
        },
        launch={"restarts": 1000},
    )
    undisturbed = run(planned, out=tmp_path / "undisturbed")
    folder = tmp_path / "killed"
    killer = Killer(folder, victims, KILLS, between)
    done = run(planned, out=folder, show=killer.show, show_every_s=SOON_S)
    assert killer.left == 0, "the run was over before the killer was done"
    assert done.summary["model_sha256"] == undisturbed.summary["model_sha256"]
    assert_every_contribution_counts_once(done, planned)
    assert_every_contribution_counts_once(undisturbed, planned)


MORTAL = """
import os, signal, sys
from pathlib import Path

from muster.server.aggregators.fedavg import FedAvg
from muster.server.account.ledger import Ledger


class Mortal(FedAvg):
    pass


def commit(self, row, *rest, written=Ledger.commit):
    marks = Path(os.environ["MORTAL"])
    mark = marks / str(row.round)
    if marks.name == "after":
        written(self, row, *rest)
    if row.round % 4 == 0 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if marks.name == "before":
        written(self, row, *rest)


if "muster.server" in sys.orig_argv and "MORTAL" in os.environ:
    Ledger.commit = commit
"""
"""A rule whose server dies before or after it writes every fourth round, once each: the next round
has been called then, and devices have done its work. The journal does not have the round yet."""


@pytest.mark.parametrize("moment", [pytest.param("before", marks=pytest.mark.soak), "after"])
def test_a_server_that_dies_while_it_writes_is_told_the_same_again(
    scenario: MakeScenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    modules, marks = tmp_path / "modules", tmp_path / moment
    modules.mkdir()
    marks.mkdir()
    (modules / "mortal.py").write_text(MORTAL)
    monkeypatch.syspath_prepend(modules)
    paths = filter(None, [str(modules), os.environ.get("PYTHONPATH")])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    feedback = {"compression": {"kind": "top-k", "ratio": 0.4}}
    planned = scenario(
        groups=[{"name": "dev", "count": 3, "link": feedback}],
        server={"rounds": 18, "evaluate_every": 20, "aggregator": "mortal:Mortal"},
        launch={"restarts": 1000},
    )
    undisturbed = run(planned, out=tmp_path / "undisturbed")
    monkeypatch.setenv("MORTAL", str(marks))
    done = run(planned, out=tmp_path / "killed")
    assert sorted(int(mark.name) for mark in marks.iterdir()) == [4, 8, 12, 16]
    assert done.summary["model_sha256"] == undisturbed.summary["model_sha256"]
    assert_every_contribution_counts_once(done, planned)


STILLBORN = """
import os, random, signal, sys
from pathlib import Path

marks, share = Path(os.environ["STILLBORN"]), float(os.environ["STILLBORN_SHARE"])


def live_shortly(events):
    drawn = random.Random(f"{marks.name} {len(list((marks / 'starts').iterdir()))}")
    (marks / "starts" / f"{os.getpid()}").touch()
    if drawn.random() >= share:
        return
    for kill in range(int(os.environ["STILLBORN_KILLS"])):
        try:
            (marks / "kills" / f"{kill}").touch(exist_ok=False)
            break
        except FileExistsError:
            continue
    else:
        return
    left = drawn.randrange(events)

    def count(event, arguments):
        nonlocal left
        left -= 1
        if left == -1:  # os.kill is an event too
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def device_lives_shortly():
    frame = sys._getframe()
    while frame.f_code.co_name != "_fork":  # of the nursery
        frame = frame.f_back
    if frame.f_locals["name"] != "evaluation":  # whose death ends the run
        live_shortly(40)


victims = os.environ["STILLBORN_VICTIMS"].split()
if "server" in victims and "muster.server" in sys.orig_argv:
    live_shortly(8000)
if "nursery" in victims and "muster.client.processes.nursery" in sys.orig_argv:
    live_shortly(20000)
if "gateway" in victims and "muster.emulator.gateway" in sys.orig_argv:
    live_shortly(4000)
if "devices" in victims and "muster.client.processes.nursery" in sys.orig_argv:
    os.register_at_fork(after_in_child=device_lives_shortly)
"""
"""A `sitecustomize`, which Python imports first of all. It kills processes while they start: after
a number of audit events (imports, opened files, sockets) that is drawn from those of a start."""


class Stillborn:
    """Kills in starts, which STILLBORN carries out in the processes of the runs of a test.

    Args:
        victims: "server", "nursery", "gateway", "devices", or several of them.
        share: of the starts that end early, until there were enough kills.
    """

    def __init__(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        victims: str,
        kills: int,
        share: float = 1.0,
    ) -> None:
        modules, self._marks = tmp_path / "stillborn", tmp_path / "marks"
        for folder in (modules, self._marks / "starts", self._marks / "kills"):
            folder.mkdir(parents=True)
        (modules / "sitecustomize.py").write_text(STILLBORN)
        paths = filter(None, [str(modules), os.environ.get("PYTHONPATH")])
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
        monkeypatch.setenv("STILLBORN", str(self._marks))
        monkeypatch.setenv("STILLBORN_VICTIMS", victims)
        monkeypatch.setenv("STILLBORN_KILLS", str(kills))
        monkeypatch.setenv("STILLBORN_SHARE", str(share))

    @property
    def kills(self) -> int:
        return len(list((self._marks / "kills").iterdir()))


SHORT: dict[str, Any] = {
    "server": {"rounds": 6, "evaluate_every": 6, "aggregator": "agnostic"},
    "groups": [{"name": "dev", "count": 3, "link": {"profile": "unshaped"}}],
}


@pytest.fixture(scope="module")
def sha256_of_short(scenario: MakeScenario, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The hash of the model with which SHORT ends when nobody dies."""
    done = run(scenario(**SHORT), out=tmp_path_factory.mktemp("short") / "run", report=False)
    return str(done.summary["model_sha256"])


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("victims", "kills"), [("server", KILLS), ("devices", KILLS), ("gateway", 2), ("nursery", 2)]
)
def test_deaths_while_processes_start_use_up_restarts_and_change_nothing(
    scenario: MakeScenario,
    sha256_of_short: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    victims: str,
    kills: int,
) -> None:
    planned = scenario(**SHORT, launch={"restarts": kills})
    stillborn = Stillborn(tmp_path, monkeypatch, victims, kills)
    done = run(planned, out=tmp_path / "killed", report=False)
    assert stillborn.kills == kills
    statuses = [event["status"] for event in done.ledger.events("died")]
    assert statuses == [-signal.SIGKILL] * kills
    assert done.summary["model_sha256"] == sha256_of_short
    assert_every_contribution_counts_once(done, planned)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_storm_of_kills_half_of_them_in_starts_changes_nothing(
    scenario: MakeScenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = {"name": "dev-far", "count": 2, "link": {"profile": "unshaped"}}
    planned = scenario(
        groups=[{"name": "dev", "count": 3}, far],
        server={"rounds": 20 * KILLS, "evaluate_every": 100, "aggregator": "agnostic"},
        launch={"restarts": 2 * KILLS},
    )
    undisturbed = run(planned, out=tmp_path / "undisturbed", report=False)
    starts = Stillborn(tmp_path, monkeypatch, "server gateway devices", KILLS // 2, share=0.6)
    killer = Killer(tmp_path / "killed", "all", KILLS - KILLS // 2, 60)
    done = run(
        planned, out=tmp_path / "killed", report=False, show=killer.show, show_every_s=SOON_S
    )
    assert killer.left == 0, "the run was over before the killer was done"
    assert starts.kills == KILLS // 2
    assert done.summary["model_sha256"] == undisturbed.summary["model_sha256"]
    assert_every_contribution_counts_once(done, planned)


def test_a_process_that_never_gets_through_its_start_ends_the_run_by_name(
    scenario: MakeScenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Stillborn(tmp_path, monkeypatch, "server", kills=3)
    with pytest.raises(RunFailed, match="server ended unexpectedly by signal 9") as failed:
        run(scenario(launch={"restarts": 2}), out=tmp_path / "run", report=False)
    assert f"muster run {tmp_path / 'run/scenario.toml'} --out OTHER" in str(failed.value)


@pytest.mark.parametrize("victims", [pytest.param("server", marks=pytest.mark.soak), "devices"])
def test_kills_change_nothing_of_a_life(
    scenario: MakeScenario, tmp_path: Path, victims: str
) -> None:
    group = {
        "name": "dev",
        "count": 7,
        "device": {"profile": "phone", "examples_per_s": 0.1},
        "availability": {"kind": "markov", "mean_up_s": 7200, "mean_down_s": 3600},
        "participation": {"battery_min": 0.1, "drop_out": 0.3},
        "covariates": {
            "z": {"age": {"kind": "normal"}},
            "x": {"charge": "battery", "recent": "recent"},
        },
        "enrollment": {"kind": "logistic", "intercept": 0.5, "z": {"age": 1.0}},
    }
    planned = scenario(
        clock={"round_s": 600},
        groups=[group],
        # A rule that learns from all rounds so far: a restarted server reads them in the ledger.
        server={"rounds": 70 + 6 * KILLS, "evaluate_every": 100, "aggregator": "fedipw"},
        launch={"restarts": 1000},
    )
    undisturbed = run(planned, out=tmp_path / "undisturbed")
    killer = Killer(tmp_path / "killed", victims, max(2, KILLS // 5), 50)
    done = run(planned, out=tmp_path / "killed", show=killer.show, show_every_s=SOON_S)
    assert killer.left == 0, "the run was over before the killer was done"
    assert done.summary["model_sha256"] == undisturbed.summary["model_sha256"]
    # A model that was sent again after a death is counted again.
    first, second = (
        ended.ledger.answers.drop(columns=["at", "bytes_down"]) for ended in (undisturbed, done)
    )
    assert set(first["decision"]) == {"accept", "decline", "abort"}
    # Every charge at every decision: nothing drained twice, nothing was forgotten.
    pd.testing.assert_frame_equal(first, second)
    pd.testing.assert_frame_equal(undisturbed.ledger.estimates, done.ledger.estimates)
