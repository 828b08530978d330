"""Fleets on real nodes of Ray: the same model as on one machine, whichever node or process dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.own_personal import own_personal, parts_of
from tests.ray.conftest import at_round, model_of
from tests.recorded_fleet import recorded_groups
from tests.run_folders import has_committed

from muster.chaos.run_processes import processes_with, run_processes
from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.emulator import resume, run
from muster.emulator.scenario.scenario import Scenario

if TYPE_CHECKING:
    from tests.system.conftest import MakeScenario

pytestmark = pytest.mark.usefixtures("nothing_left")

MUSTER = [sys.executable, "-c", "from muster.cli.commands import main; main()"]

SIX = {"name": "dev", "count": 6}
PHONES = {
    "name": "phones",
    "count": 4,
    "link": {"up": "20 Mbit/s", "down": "20 Mbit/s"},
    "device": {"profile": "phone"},
}
"""Devices that have a gateway, and a state that must survive: a battery."""


def kill_actor(run_folder: Path) -> None:
    """Kill the actor of a run's first node with SIGKILL, found as the parent of the node's
    program."""
    on = str(run_folder / "logs/node-1.log")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().decode().split("\0")
            log = os.readlink(process / "fd/2")
        except OSError:
            continue
        if "muster.emulator.launch.ray.node_program" in command and log == on:
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            os.kill(int(parent), signal.SIGKILL)
            return
    pytest.fail(f"there is no program with the log {on}")


def test_a_fleet_on_three_nodes_gives_the_model_of_one_machine(
    cluster: Any, scenario: MakeScenario, tmp_path: Path
) -> None:
    cluster.add_node(num_cpus=1)
    cluster.add_node(num_cpus=1)
    planned = scenario(groups=[SIX, PHONES])
    run(planned, out=tmp_path / "ray", backend="ray", report=False)
    run(planned, out=tmp_path / "here", report=False)
    assert model_of(tmp_path / "ray") == model_of(tmp_path / "here")
    nodes = {path.name for path in (tmp_path / "ray/logs").glob("node-*.log")}
    assert nodes == {"node-1.log", "node-2.log", "node-3.log"}


def test_tables_and_recordings_are_read_on_nodes_and_groups_share_a_link(
    cluster: Any, scenario: MakeScenario, tmp_path: Path
) -> None:
    cluster.add_node(num_cpus=1)
    groups = [*recorded_groups(tmp_path / "files"), SIX]
    planned = scenario(groups=groups, server={"rounds": 4, "deadline_s": 30.0})
    done = run(planned, out=tmp_path / "ray", backend="ray", report=False)
    run(planned, out=tmp_path / "here", report=False)
    assert model_of(tmp_path / "ray") == model_of(tmp_path / "here")
    assert done.ledger.answers["modelled_s"].nunique() > 4


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dies", ["node", "actor"])
def test_devices_of_a_lost_node_return_elsewhere(
    cluster: Any, scenario: MakeScenario, tmp_path: Path, dies: str
) -> None:
    labels = {"place": "away"}
    first = cluster.add_node(num_cpus=1, labels=labels)
    cluster.wait_for_nodes()
    planned = scenario(
        server={"rounds": 400},
        groups=[{"name": "dev", "count": 3}, PHONES],
        launch={"restarts": 5, "cluster": {"labels": {"phones": labels}}},
    )

    def lose() -> None:
        cluster.add_node(num_cpus=1, labels=labels)
        if dies == "node":
            cluster.remove_node(first, allow_graceful=False)
        else:
            kill_actor(tmp_path / "ray")

    show = at_round(3, lose)
    done = run(planned, out=tmp_path / "ray", backend="ray", report=False, show=show)
    run(planned, out=tmp_path / "here", report=False)
    assert model_of(tmp_path / "ray") == model_of(tmp_path / "here")
    deaths = [event for event in done.ledger.events("died") if event["cause"]]
    assert {event["cause"] for event in deaths} == {"its node was lost"}


@pytest.mark.soak
def test_a_command_that_dies_leaves_nothing_and_can_be_resumed(
    cluster: Any, scenario: MakeScenario, tmp_path: Path
) -> None:
    cluster.add_node(num_cpus=1)
    planned = scenario(server={"rounds": 400}, groups=[{"name": "dev", "count": 4}, PHONES])
    (tmp_path / "scenario.toml").write_text(planned.to_toml())
    out = tmp_path / "ray"
    arguments = ["run", str(tmp_path / "scenario.toml"), "--backend", "ray", "--out", str(out)]
    with subprocess.Popen([*MUSTER, *arguments]) as driver:
        while not has_committed(out, 3):
            assert driver.poll() is None
            time.sleep(0.05)
        driver.send_signal(signal.SIGKILL)
    limit = time.monotonic() + 60
    while processes_with(str(tmp_path)) and time.monotonic() < limit:
        time.sleep(0.05)
    assert processes_with(str(tmp_path)) == []
    resume(out, backend="ray", report=False)
    run(planned, out=tmp_path / "here", report=False)
    assert model_of(out) == model_of(tmp_path / "here")


def test_a_cluster_that_is_too_small_is_refused_before_anything_starts(
    cluster: Any, scenario: MakeScenario, tmp_path: Path
) -> None:
    cluster.add_node(num_cpus=1)
    planned = scenario(groups=[SIX], launch={"cluster": {"resources": {"CPU": 0.5}}})
    with pytest.raises(ConfigError) as refusal:
        run(planned, out=tmp_path / "ray", backend="ray")
    assert "2 of 6 programs of the group dev find no room: they need 1 CPU" in str(refusal.value)
    assert not (tmp_path / "ray").exists()


def test_devices_return_on_the_only_node_if_its_actor_dies(
    cluster: Any, scenario: MakeScenario, tmp_path: Path
) -> None:
    planned = scenario(
        server={"rounds": 40},
        launch={"restarts": 5, "cluster": {"resources": {"CPU": 0.3}}},  # once, of one core
    )

    def lose() -> None:
        for process in run_processes(tmp_path / "ray"):  # so that the run waits for the loss
            if process.name.startswith("dev-"):
                os.kill(process.pid, signal.SIGSTOP)
        kill_actor(tmp_path / "ray")

    show = at_round(3, lose)
    done = run(planned, out=tmp_path / "ray", backend="ray", report=False, show=show)
    assert done.ledger.events("died")


def test_own_data_and_local_entries_give_the_same_on_nodes(cluster: Any, tmp_path: Path) -> None:
    cluster.add_node(num_cpus=1)
    (tmp_path / "files").mkdir()
    own = validate(Scenario, own_personal(tmp_path / "files"), "own")
    done = run(own, out=tmp_path / "ray", backend="ray")
    run(own, out=tmp_path / "here", report=False)
    assert done.ledger.device_evaluations["client"].nunique() == 3
    found = parts_of(tmp_path / "ray")
    assert found == parts_of(tmp_path / "here")
    assert len(found) == 4
    assert all(found.values())
