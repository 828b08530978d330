"""Faults that are injected by hand into a run with real processes, from other programs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from tests.system.test_faults import STATES, courses, undisturbed

from muster.common.config import validate
from muster.common.errors import ConfigError, Unreachable
from muster.emulator import Run, exported_faults, heal, inject, run
from muster.emulator.following.following import status_of
from muster.emulator.injection.by_hand import InjectedByHand
from muster.emulator.launch.backend import BackendName
from muster.emulator.scenario.scenario import Scenario

if TYPE_CHECKING:
    from pathlib import Path

    from tests.system.conftest import MakeScenario

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("nothing_left")]


class Running:
    """A run in another thread."""

    def __init__(self, planned: Scenario, folder: Path, backend: BackendName = "processes") -> None:
        self._arguments = planned, folder, backend
        self._seen = threading.Condition()
        self._events: list[dict[str, Any]] = []
        self._done: list[Run] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        planned, folder, backend = self._arguments
        try:
            done = run(planned, out=folder, backend=backend, report=False, show=self._show)
            self._done.append(done)
        finally:
            self._show({"event": "over"})

    def _show(self, event: dict[str, Any]) -> None:
        with self._seen:
            self._events.append(event)
            self._seen.notify_all()

    def wait_for(self, **fields: Any) -> dict[str, Any]:
        """Wait for an event with these fields."""

        def found() -> list[dict[str, Any]]:
            wanted = fields.items()
            return [e for e in self._events if wanted <= e.items() or e["event"] == "over"]

        with self._seen:
            assert self._seen.wait_for(found, timeout=200)
            event = found()[0]
        assert event["event"] != "over", fields
        return event

    def join(self) -> Run:
        self._thread.join()
        return self._done[0]


def muster(*arguments: object) -> subprocess.CompletedProcess[str]:
    start = "from muster.cli.entry import main; main()"
    words = [sys.executable, "-c", start, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def test_faults_by_hand_have_an_effect_are_healed_and_can_be_repeated(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    # While a device is paused the rounds wait, so the run goes on as long as this test needs it.
    target = {"names": ["dev-0002"]}
    hold = {"do": "pause", "name": "hold", "target": target, "when": {"round": 3}, "for_s": 50}
    planned = scenario(
        task={"name": "linear", "dimension": 5, "heterogeneity": 1.0},
        server={"rounds": 100},
        faults=[hold],
    )
    folder = tmp_path / "run"
    running = Running(planned, folder)
    running.wait_for(event="fault_observed", fault="hold")
    paused = inject(folder, "pause", target={"names": ["dev-0001"]}, for_s=40)
    assert (paused.name, paused.targets, paused.for_s) == ("pause-1", ["dev-0001"], 40.0)
    running.wait_for(event="fault_observed", fault="pause-1", seen="process stopped")
    assert status_of(folder).faults == ["hold on dev-0002", "pause-1 on dev-0001"]
    refused = muster("inject", folder, "offline")
    assert refused.returncode == 2
    assert "acts inside devices" in refused.stderr
    restarted = muster("inject", folder, "restart", "--target", "server", "--name", "again")
    assert (restarted.returncode, restarted.stdout) == (0, "again: restart on server, once\n")
    running.wait_for(event="fault_verified", fault="again")
    with pytest.raises(ConfigError, match="no fault 'nothing' of programs or links acts now"):
        heal(folder, "nothing")
    healed = muster("unpause", folder)
    assert (healed.returncode, healed.stdout) == (0, "healed: hold, pause-1\n")
    done = running.join()

    assert done.status == "completed"
    assert courses(done) == dict.fromkeys(["hold", "pause-1", "again"], STATES)
    assert done.summary["vacuous"] == []
    assert done.summary["model_sha256"] == undisturbed(planned, tmp_path / "alone")
    with pytest.raises(Unreachable, match="no `muster run` or `muster up` is under way"):
        inject(folder, "pause")

    tables = tomllib.loads(exported_faults(folder))["faults"]
    values = {**tomllib.loads(planned.to_toml()), "faults": tables}
    pause, restart = validate(Scenario, values, "exported").faults
    events = {(e["fault"], e["event"]): e for e in done.ledger.events(*STATES)}
    begun, ended = (events["pause-1", f"fault_{each}"] for each in ("applied", "healed"))
    assert pause.target.names == ["dev-0001"]
    assert pause.when.round == begun["round"]
    assert pause.for_s == pytest.approx(ended["at"] - begun["at"], abs=1e-3)
    assert (restart.name, restart.target.role, restart.for_s) == ("again", "server", None)


def test_a_signal_ends_a_run_whose_server_is_held(scenario: MakeScenario, tmp_path: Path) -> None:
    planned = scenario(clock={"kind": "wall"}, server={"rounds": 100_000, "deadline_s": 60.0})
    (tmp_path / "scenario.toml").write_text(planned.to_toml())
    folder, limit = tmp_path / "run", time.monotonic() + 60
    start = "from muster.cli.entry import main; main()"
    arguments = "run", str(tmp_path / "scenario.toml"), "--out", str(folder)
    words = [sys.executable, "-c", start, *arguments]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        while paused_server(folder) is None:
            assert time.monotonic() < limit
            assert process.poll() is None
            time.sleep(0.1)
        unanswered = muster("stop", folder)
        assert "`muster heal" in unanswered.stderr
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Traceback" not in errors
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["status"], summary["vacuous"]) == ("stopped", [])


def paused_server(folder: Path) -> InjectedByHand | None:
    """Pause the server until it is healed; None if no round has opened yet."""
    try:
        return inject(folder, "pause", target={"role": "server"}, until_healed=True)
    except (ConfigError, Unreachable):
        return None
