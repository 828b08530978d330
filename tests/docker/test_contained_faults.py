"""Faults in containers: the same timeline and the same model as in processes, and deaths that the
timeline did not order."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from muster.common.config import validate
from muster.emulator import run
from muster.emulator.launch.docker.services import project_of
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.whole_run import simulate_run

pytestmark = [pytest.mark.timeout(400), pytest.mark.usefixtures("images")]

FAULTS: list[dict[str, Any]] = [
    {"do": "scaled", "factor": 3.0, "target": {"count": 1}, "when": {"round": 4}, "for_rounds": 3},
    {"do": "crash", "target": {"names": ["dev-0001"]}, "when": {"round": 8}, "for_s": 0.2},
    # It is killed and paused at once, and paused again when it is back.
    {"do": "pause", "target": {"names": ["dev-0001"]}, "when": {"round": 8}, "for_s": 20.0},
    {"do": "restart", "target": {"role": "server"}, "when": {"round": 16}},
    {"do": "partition", "target": {"count": 1}, "when": {"round": 24}, "for_s": 0.5},
    {"do": "memory-limit", "mib": 16, "target": {"count": 1}, "when": {"round": 32}, "for_s": 1.0},
    {"do": "disk-full", "target": {"role": "server"}, "when": {"round": 120}, "for_s": 2.0},
    # A device needs more than 2 ms of a core in 100 ms, however busy the machine is.
    {
        "do": "cpu-limit",
        "share": 0.02,
        "target": {"names": ["dev-0000"]},
        "when": {"round": 240},
        "for_s": 3.0,
    },
]


def scenario(rounds: int, faults: list[dict[str, Any]], restarts: int = 0) -> Scenario:
    values = {
        "name": "contained",
        "task": {"name": "linear", "dimension": 5, "heterogeneity": 1.0},
        "server": {"rounds": rounds, "evaluate_every": rounds},
        "groups": [{"name": "dev", "count": 2, "link": {"profile": "unshaped"}}],
        "launch": {"restarts": restarts},
        "faults": faults,
    }
    return validate(Scenario, values, "test")


def test_faults_strike_containers_as_processes_and_the_model_is_the_same(tmp_path: Path) -> None:
    planned = scenario(600, FAULTS)
    done = run(planned, out=tmp_path / "run", backend="docker", report=False)
    assert done.summary["vacuous"] == []
    assert not list(done.ledger.events("died"))
    seen = {fault["fault"]: fault["seen"] for fault in done.summary["faults"]}
    assert seen["crash-1"] == "ended by signal 9"
    assert seen["pause-1"] == "process stopped"
    assert seen["cpu-limit-1"].startswith("held back, at ")
    assert seen["disk-full-1"] == "the server waits for room"
    assert list(done.ledger.events("disk_has_room"))
    inside = [fault for fault in planned.faults if fault.do.kind == "scaled"]
    groups = [group.model_copy(update={"link": type(group.link)()}) for group in planned.groups]
    alone = planned.model_copy(update={"faults": inside, "groups": groups})
    assert simulate_run(alone, tmp_path / "alone") == "completed"
    undisturbed = json.loads((tmp_path / "alone/summary.json").read_text())
    if done.summary["fingerprint"] == undisturbed["fingerprint"]:
        assert done.summary["model_sha256"] == undisturbed["model_sha256"]


def on_round(number: int, deed: Callable[[], object]) -> Callable[[dict[str, Any]], None]:
    """A display that does something once a round is committed."""

    def show(event: dict[str, Any]) -> None:
        if event["event"] == "round_committed" and event["round"] == number:
            deed()

    return show


def test_a_container_without_memory_dies_unexpectedly_and_its_death_is_told_as_such(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    victim = f"{project_of(folder)}-dev-0001"

    def starve() -> None:
        # What a container writes to /tmp is memory of it.
        limit = ["docker", "update", "--memory", "600m", "--memory-swap", "600m", victim]
        subprocess.run(limit, check=True, capture_output=True, timeout=60)
        fill = ["docker", "exec", victim, "sh", "-c", "exec cat /dev/zero > /tmp/fill"]
        subprocess.run(fill, check=False, capture_output=True, timeout=60)

    done = run(
        scenario(1500, [], restarts=1),
        out=folder,
        backend="docker",
        show=on_round(10, starve),
        report=False,
    )
    (death,) = done.ledger.events("died")
    assert (death["process"], death["status"]) == ("dev-0001", -9)
    assert death["cause"] == "out of memory"
    assert set(done.ledger.rounds["folded"]) == {2}
