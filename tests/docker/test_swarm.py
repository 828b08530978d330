"""`muster up --swarm`: the fleet as services of a swarm of this machine alone."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.docker.test_up import (
    Docker,
    Muster,
    committed,
    container,
    folder,
    muster,
    names_left,
    scenario,
    until,
    works,
)

__all__ = ["folder", "muster", "scenario"]

pytestmark = [pytest.mark.timeout(400), pytest.mark.usefixtures("images")]


@pytest.fixture
def swarm(docker: Docker) -> Iterator[None]:
    """A swarm of this machine alone, unless it is in one already."""
    made = docker("swarm", "init", "--advertise-addr", "127.0.0.1").returncode == 0
    yield
    if made:
        works(docker("swarm", "leave", "--force"))


def services(docker: Docker, folder: Path) -> list[str]:
    said = works(docker("service", "ls", "--quiet", "--filter", f"label=muster.folder={folder}"))
    return said.split()


def is_another(docker: Docker, folder: Path, name: str, before: str) -> bool:
    return bool(container(docker, folder, name)["Id"] != before)


def is_further(muster: Muster, folder: Path, round: int) -> bool:
    return committed(muster, folder) > round


@pytest.mark.usefixtures("swarm")
def test_a_fleet_runs_in_a_swarm_where_the_dead_return_and_goes_on_from_its_file(
    muster: Muster, docker: Docker, scenario: Callable[..., Path], folder: Path
) -> None:
    said = works(muster("up", scenario(3), "--swarm", "--out", folder))
    assert "3 devices are up, 6 containers in all; round " in said
    server = container(docker, folder, "server")
    assert server["HostConfig"]["CapDrop"] == ["ALL"]
    hidden = works(docker("exec", server["Id"], "ls", "/run/muster/setup", "/run/muster/devices"))
    assert set(hidden.split()) == {
        "/run/muster/setup:",
        "/run/muster/devices:",
        "server.json",
        "initial.safetensors",
    }
    for name in ("dev-0001", "gateway-dev"):
        before = container(docker, folder, name)["Id"]
        works(docker("kill", before))
        until(partial(is_another, docker, folder, name, before))
        until(partial(is_further, muster, folder, committed(muster, folder) + 1))
    assert "does not run" not in works(muster("status", folder))
    assert "stopped: asked by a signal" in works(muster("down", folder))
    assert names_left(docker, folder) == services(docker, folder) == []
    summary = json.loads((folder / "summary.json").read_text())
    assert {"server", "gateway-dev", "dev-0001", "evaluation"} <= {
        log.stem for log in (folder / "logs").iterdir()
    }
    works(muster("up", "--resume", folder))
    assert len(services(docker, folder)) == 6
    assert committed(muster, folder) > summary["rounds"]
    works(muster("down", "--all"))
    assert names_left(docker, folder) == services(docker, folder) == []


@pytest.mark.usefixtures("swarm")
def test_what_dies_at_the_start_is_told_with_its_log_and_nothing_is_left(
    muster: Muster,
    docker: Docker,
    scenario: Callable[..., Path],
    folder: Path,
    images: dict[str, str],
) -> None:
    wrong = f"launch.client_image={images['server']}"  # it has no torch
    failed = muster("up", scenario(), "--swarm", "--out", folder, "--set", wrong)
    assert failed.returncode == 1
    assert "No module named" in failed.stderr
    assert names_left(docker, folder) == services(docker, folder) == []


@pytest.mark.usefixtures("swarm")
def test_a_label_that_no_machine_has_is_refused_before_anything_starts(
    muster: Muster, scenario: Callable[..., Path], folder: Path
) -> None:
    labels = 'launch.cluster.labels={dev={zone="nowhere"}}'
    refused = muster("up", scenario(), "--swarm", "--out", folder, "--set", labels)
    assert refused.returncode == 2
    assert "docker node update --label-add zone=nowhere" in refused.stderr
    assert not folder.exists()


def test_a_machine_that_is_no_manager_is_told_how_to_become_one(
    muster: Muster, docker: Docker, scenario: Callable[..., Path], folder: Path
) -> None:
    if json.loads(works(docker("info", "--format", "{{json .Swarm}}")))["ControlAvailable"]:
        pytest.skip("this machine is a manager of a swarm")
    refused = muster("up", scenario(), "--swarm", "--out", folder)
    assert refused.returncode == 2
    assert "docker swarm init" in refused.stderr
    assert not folder.exists()
