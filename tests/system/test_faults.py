"""Faults of processes and links in runs with real processes: their effect is measured, they are
healed, and in lockstep the model is that of the undisturbed run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muster.chaos.run_processes import processes_with
from muster.emulator import Run, heal, run
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.whole_run import simulate_run

if TYPE_CHECKING:
    from tests.system.conftest import MakeScenario

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("nothing_left")]

STATES = [f"fault_{state}" for state in ("applied", "observed", "healed", "verified")]


LINK = {"rtt": "2 ms", "up": "400 kbit/s", "down": "400 kbit/s"}


def undisturbed(planned: Scenario, folder: Path) -> str:
    """The hash of the model without faults and links, from a run inside this process."""
    groups = [group.model_copy(update={"link": type(group.link)()}) for group in planned.groups]
    alone = planned.model_copy(update={"faults": [], "groups": groups})
    assert simulate_run(alone, folder) == "completed"
    return str(json.loads((folder / "summary.json").read_text())["model_sha256"])


def courses(done: Run) -> dict[str, list[str]]:
    """The events of each fault's first occurrence, in order."""
    found: dict[str, list[str]] = {}
    for event in done.ledger.events(*STATES):
        if event["number"] == 1:
            found.setdefault(event["fault"], []).append(event["event"])
    return found


def test_programs_that_die_and_hang_come_back_and_change_nothing(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    faults: list[dict[str, Any]] = [
        {"do": "crash", "target": {"count": 1}, "when": {"round": 5}, "for_s": 0.2},
        {"do": "stop", "target": {"count": 1}, "when": {"round": 10}, "for_s": 0.1},
        {"do": "pause", "target": {"count": 2}, "when": {"round": 15}, "for_s": 0.3},
        {"do": "restart", "target": {"role": "server"}, "when": {"round": 20}},
        {"do": "pause", "target": {"role": "server"}, "when": {"round": 25}, "for_s": 0.2},
        {"do": "crash", "target": {"role": "gateway"}, "when": {"round": 30}, "for_s": 0.2},
        {
            "do": "churn",
            "share_percent": 40,
            "when": {"round": 35, "every_rounds": 10},
            "for_s": 0.1,
        },
    ]
    planned = scenario(
        task={"name": "linear", "dimension": 5, "heterogeneity": 1.0},
        groups=[{"name": "dev", "count": 3}, {"name": "far", "count": 1, "link": {"rtt": "5 ms"}}],
        server={"rounds": 60, "evaluate_every": 20},
        faults=faults,
    )
    done = run(planned, out=tmp_path / "run", report=False)
    assert done.status == "completed"
    assert done.summary["model_sha256"] == undisturbed(planned, tmp_path / "alone")
    assert done.summary["vacuous"] == []
    assert courses(done) == {fault["fault"]: STATES for fault in done.summary["faults"]}
    assert not list(done.ledger.events("died"))  # the timeline ordered all deaths
    folded = done.ledger.contributions.query("outcome == 'folded'")
    assert len(folded) == 60 * 4
    assert not folded.duplicated(["round", "client"]).any()
    seen = {fault["fault"]: fault["seen"] for fault in done.summary["faults"]}
    assert seen["crash-1"] == "ended by signal 9"
    assert seen["stop-1"] == "ended by signal 15"
    assert seen["pause-1"] == "process stopped"


def test_links_are_cut_with_their_connections_and_mend(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    faults: list[dict[str, Any]] = [
        {"do": "disconnect", "target": {"count": 1}, "when": {"round": 4}, "for_s": 0.3},
        {"do": "blackhole", "target": {"count": 1}, "when": {"round": 8}, "for_s": 0.3},
        {"do": "reset", "target": {"percent": 100}, "when": {"round": 12}},
        {"do": "partition", "target": {"count": 2}, "when": {"round": 16}, "for_s": 0.3},
        {"do": "partition", "way": "down", "when": {"round": 20}, "for_s": 0.3},
        {"do": "blackhole", "name": "again", "when": {"round": 20}, "for_s": 0.2},
        {"do": "degrade", "factor": 0.2, "when": {"round": 24}, "for_s": 0.5},
        {
            "do": "degrade",
            "factor": 0.5,
            "target": {"count": 1},
            "when": {"round": 24},
            "for_s": 0.8,
        },
    ]
    planned = scenario(
        groups=[{"name": "dev", "count": 3, "link": LINK}],
        server={"rounds": 150, "evaluate_every": 50},
        faults=faults,
    )
    done = run(planned, out=tmp_path / "run", report=False)
    assert done.status == "completed"
    assert done.summary["model_sha256"] == undisturbed(planned, tmp_path / "alone")
    assert done.summary["vacuous"] == []
    assert courses(done) == {fault["fault"]: STATES for fault in done.summary["faults"]}
    folded = done.ledger.contributions.query("outcome == 'folded'")
    assert len(folded) == 150 * 3
    seen = {fault["fault"]: fault["seen"] for fault in done.summary["faults"]}
    # A device has both factors, the others have the first.
    assert "the gateway measured 0.08 Mbit/s" in seen["degrade-1"]


def test_links_that_delay_lose_stop_and_flap_change_nothing_in_lockstep(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    faults: list[dict[str, Any]] = [
        {"do": "delay", "rtt": "40 ms", "when": {"round": 4}, "for_s": 0.6},
        {"do": "jitter", "jitter": "20 ms", "when": {"round": 30}, "for_s": 1.0},
        {"do": "loss", "loss": 0.4, "when": {"round": 60}, "for_s": 1.0},
        {"do": "limit-bytes", "bytes": 1000, "when": {"round": 90}, "for_s": 1.0},
        {
            "do": "limit-bytes",
            "bytes": 500,
            "then": "silence",
            "target": {"count": 1},
            "when": {"round": 120},
            "for_s": 1.0,
        },
        {"do": "flap", "down_s": 0.1, "up_s": 0.2, "when": {"round": 150}, "for_s": 0.8},
        {"do": "pause", "target": {"role": "gateway"}, "when": {"round": 180}, "for_s": 0.3},
        {"do": "delay", "name": "meanwhile", "when": {"round": 180}, "for_s": 0.9},
    ]
    planned = scenario(
        groups=[{"name": "dev", "count": 3, "link": LINK}],
        server={"rounds": 240, "evaluate_every": 80},
        faults=faults,
    )
    done = run(planned, out=tmp_path / "run", report=False)
    assert done.status == "completed"
    assert done.summary["model_sha256"] == undisturbed(planned, tmp_path / "alone")
    assert done.summary["vacuous"] == []
    assert courses(done) == {fault["fault"]: STATES for fault in done.summary["faults"]}
    folded = done.ledger.contributions.query("outcome == 'folded'")
    assert len(folded) == 240 * 3


def test_a_loss_that_is_too_small_to_show_leaves_the_run_vacuous(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    planned = scenario(
        groups=[{"name": "dev", "count": 2, "link": LINK}],
        server={"rounds": 60, "evaluate_every": 60},
        faults=[{"do": "loss", "loss": 1e-4, "when": {"round": 2}, "for_s": 0.3}],
    )
    done = run(planned, out=tmp_path / "run", report=False)
    assert done.status == "completed"
    assert done.summary["vacuous"] == ["loss-1"]
    assert done.summary["faults"][0]["healed"] == 1


def test_damaged_updates_are_sent_again_over_real_connections(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    first = {"target": {"names": ["dev-0000"]}, "when": {"round": 2}, "for_rounds": 2}
    planned = scenario(
        task={"name": "linear", "dimension": 100_000, "examples_per_client": 4},
        training={"learning_rate": 1e-6, "local_steps": 1, "batch_size": 4},
        groups=[{"name": "dev", "count": 2}],
        server={"rounds": 5, "evaluate_every": 5},
        faults=[{"do": "corrupt", **first}, {"do": "reordered", **first}],
    )
    done = run(planned, out=tmp_path / "run", report=False)
    assert done.status == "completed"
    assert done.summary["model_sha256"] == undisturbed(planned, tmp_path / "alone")
    assert courses(done) == {"corrupt-1": STATES, "reordered-1": STATES}
    refused = done.ledger.contributions.query("outcome == 'refused'")
    assert refused["client"].unique().tolist() == ["dev-0000"]
    assert refused["reason"].tolist() == ["checksum"] * 4
    assert sorted(refused["call_round"]) == [2, 2, 3, 3]
    assert done.summary["outcomes"]["folded"] == 10


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def wait_until(condition: Any) -> None:
    limit = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)


@pytest.mark.parametrize("how", ["killed", "silent"])
def test_a_pause_ends_with_the_supervisor_that_asked_for_it(how: str) -> None:
    lease = "0.2" if how == "silent" else "60"
    program = (
        f"from muster.emulator.launch import pause_watchdog as w;w.LEASE_S = {lease}; w.main()"
    )
    victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    supervisor = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert supervisor.stdin is not None
        assert supervisor.stdout is not None
        supervisor.stdin.write(json.dumps({"pause": "x", "pid": victim.pid}).encode() + b"\n")
        supervisor.stdin.flush()
        assert json.loads(supervisor.stdout.readline()) == {"failed": ""}
        if how == "killed":
            wait_until(lambda: is_stopped(victim.pid))
            supervisor.stdin.close()  # as the kernel does when the supervisor is killed
        wait_until(lambda: not is_stopped(victim.pid))
    finally:
        victim.kill()
        victim.wait()
        if not supervisor.stdin.closed:  # type: ignore[union-attr]
            supervisor.stdin.close()  # type: ignore[union-attr]
        supervisor.wait()
        supervisor.stdout.close()  # type: ignore[union-attr]


def test_nothing_stays_paused_after_the_supervisor_was_killed(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    planned = scenario(
        groups=[{"name": "dev", "count": 2}],
        server={"rounds": 200},
        faults=[{"do": "pause", "target": {"count": 1}, "when": {"round": 3}, "for_s": 60.0}],
    )
    path, out = tmp_path / "scenario.toml", tmp_path / "run"
    path.write_text(planned.to_toml())
    entry = "from muster.cli.entry import main; main()"
    command = [sys.executable, "-c", entry, "run", str(path)]
    running = subprocess.Popen(
        [*command, "--out", str(out), "--quiet"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    journal = out / "journal.jsonl"
    try:
        wait_until(lambda: journal.exists() and b'"fault_observed"' in journal.read_bytes())
    finally:
        os.kill(running.pid, signal.SIGKILL)
        running.communicate()
    # A stopped process that outlived its parents would stay for ever.
    wait_until(lambda: not processes_with(str(tmp_path)))


def test_a_pause_holds_a_program_that_a_restart_starts_again(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    target = {"names": ["dev-0001"]}
    faults: list[dict[str, Any]] = [
        {"do": "pause", "target": target, "when": {"round": 5}, "for_s": 100.0},
        {"do": "restart", "target": target, "when": {"event": "fault_observed"}},
    ]
    planned = scenario(
        task={"name": "linear", "dimension": 5},
        training={"local_steps": 500},  # else the run may be over before it is paused
        server={"rounds": 12},
        faults=faults,
    )
    out = tmp_path / "run"
    # The supervisor shows the events, and it is the one that heals: it must not wait for itself.
    asked = []

    def heal_the_pause() -> None:
        asked.append(time.time())
        heal(out, "pause-1")

    healing = threading.Thread(target=heal_the_pause)

    def show(event: dict[str, Any]) -> None:
        if event["event"] == "fault_healed" and event["fault"] == "restart-1":
            healing.start()

    done = run(planned, out=out, report=False, show=show)
    healing.join()
    assert done.summary["vacuous"] == []
    healed = {e["fault"]: e["at"] for e in done.ledger.events("fault_healed")}
    attended = done.ledger.events("attended")
    back = max(event["at"] for event in attended if event["client"] == "dev-0001")
    # The device may be back before the supervisor has written down that the pause is healed.
    assert healed["restart-1"] < asked[0] < back
    assert healed["restart-1"] < healed["pause-1"]
    assert done.summary["model_sha256"] == undisturbed(planned, tmp_path / "alone")
