"""Finds and removes the containers, networks and volumes of a run by their label, whatever made
them.

The docker backend and `muster up` and `down` share these functions. Neither the compose file nor a
compose command is needed to find a fleet again.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import docker
import docker.errors
import requests.exceptions

from muster.common.clock import Clock
from muster.common.errors import ConfigError, LaunchFailed
from muster.emulator.launch.docker.services import FOLDER_LABEL, NAME_LABEL, project_of

_PROJECT_LABEL = "com.docker.compose.project"
SERVICE_LABEL = "com.docker.compose.service"
"""Label of a container of Docker Compose; its value is the name of its service in the file."""

_STACK_LABEL = "com.docker.stack.namespace"

_SWEEPS = 20
_SWEEPS_OF_SWARM = 120  # its other machines end containers in their own time
_SWEEP_S = 0.5


def connect() -> docker.DockerClient:
    """Connect to the Docker daemon.

    Raises:
        ConfigError: there is no daemon, or this user may not use it.
    """
    try:
        client = docker.from_env()
        client.ping()
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        why = str(error)
        advice = "start it, or name another daemon in DOCKER_HOST"
        if "Permission" in why:
            advice = "your user may not use it; see docs/containers.md"
        raise ConfigError(f"no Docker daemon answers ({why}): {advice}") from None
    return client


@contextmanager
def connected() -> Iterator[docker.DockerClient]:
    """Connect to the Docker daemon until the end of the block."""
    client = connect()
    try:
        yield client
    finally:
        client.close()


def containers_of(client: docker.DockerClient, folder: Path) -> list[Any]:
    """The containers of a run folder, including those that have ended."""
    return _containers(client, _label(folder))


def containers_of_project(client: docker.DockerClient, folder: Path) -> list[Any]:
    """The containers that Docker Compose has made for a run folder, with those that a person has
    added to its file."""
    return _containers(client, f"{_PROJECT_LABEL}={project_of(folder)}")


def folders_of(client: docker.DockerClient) -> tuple[list[Path], int]:
    """The run folders that have services, containers or networks, and the number of these."""
    networks: list[Any] = client.networks.list(filters={"label": FOLDER_LABEL})
    there = [*_services(client, FOLDER_LABEL), *_containers(client, FOLDER_LABEL), *networks]
    return sorted({Path(_labels(each)[FOLDER_LABEL]) for each in there}), len(there)


def name_of(container: Any) -> str:
    """The name of a container's log file, without its suffix."""
    labels = container.labels
    return str(labels.get(NAME_LABEL) or labels.get(SERVICE_LABEL) or container.name)


def services_of(client: docker.DockerClient, folder: Path | None) -> list[Any]:
    """The services of a run folder, or of all (None), in the swarm of this machine; none if it is
    no manager of one."""
    return _services(client, _label(folder))


def name_of_service(service: Any) -> str:
    """The name of a service's log file, without its suffix."""
    return str(service.attrs["Spec"]["Labels"].get(NAME_LABEL, service.name))


def keep_logs(client: docker.DockerClient, folder: Path) -> None:
    """Append the logs of all containers of a run folder to their log files there; in a swarm, those
    of its services, whose containers may be on other machines."""
    services = services_of(client, folder)
    for service in services:
        with suppress(docker.errors.APIError):
            lines = service.logs(stdout=True, stderr=True)
            with open(folder / "logs" / f"{name_of_service(service)}.log", "ab") as log:
                log.writelines(lines)
    for container in [] if services else containers_of(client, folder):
        keep_log(container, folder)


def keep_log(container: Any, folder: Path) -> None:
    """Append the log of a container to its log file in the run folder."""
    with suppress(docker.errors.APIError):
        text = container.logs()
        with open(folder / "logs" / f"{name_of(container)}.log", "ab") as log:
            log.write(text)


def remove_all(client: docker.DockerClient, folder: Path | None, clock: Clock) -> None:
    """Remove containers, networks and volumes of the run in `folder`, or of all runs (None).

    Repeats until there are none, because Docker may still be executing requests of a command that
    was killed.

    Raises:
        LaunchFailed: something cannot be removed.
    """
    why: object = "new ones keep appearing"
    for sweep in range(_SWEEPS_OF_SWARM if services_of(client, folder) else _SWEEPS):
        found = _of_a_run(client, folder)
        if not found:
            return
        if sweep:
            clock.pause(_SWEEP_S)
        for thing, how in found:
            try:
                thing.remove(**how)
            except docker.errors.NotFound:
                pass
            except docker.errors.APIError as error:
                why = error.explanation or error
    raise LaunchFailed(f"Docker does not remove all containers, networks and volumes: {why}")


def _of_a_run(client: docker.DockerClient, folder: Path | None) -> list[tuple[Any, dict[str, Any]]]:
    """Everything that Docker has of a run, what uses others first, each with the arguments for
    removing it. This includes services that a person has added to the compose file."""
    labels = [_label(folder)]
    if folder is not None:
        labels.append(f"{_PROJECT_LABEL}={project_of(folder)}")
        labels.append(f"{_STACK_LABEL}={project_of(folder)}")
    services = {s.id: s for label in labels for s in _services(client, label)}
    containers = {c.id: c for label in labels for c in _containers(client, label)}
    rest: list[Any] = []
    for label in labels:
        rest += client.networks.list(filters={"label": label})
        rest += client.volumes.list(filters={"label": label})
    gone = {"force": True, "v": True}
    return [
        *((service, {}) for service in services.values()),
        *((container, gone) for container in containers.values()),
        *((each, {}) for each in rest),
    ]


def hand_over(folder: Path, user: tuple[int, int]) -> None:
    """Give ownership of the run folder to a user. Only root can do this, and only root needs to."""
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            with suppress(FileNotFoundError):  # a ledger's WAL file may go with its server
                os.chown(path, *user, follow_symlinks=False)


def take_back(folder: Path) -> None:
    """Give ownership of the run folder to this command's user, when its containers are gone.

    Links are removed, because a program in a container may have left them: this command would
    follow them to files that the program could not reach.
    """
    for path in folder.rglob("*"):
        if path.is_symlink():
            path.unlink()
    hand_over(folder, (os.geteuid(), os.getegid()))


def free_port() -> int:
    """A free TCP port of this machine's loopback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _containers(client: docker.DockerClient, label: str) -> list[Any]:
    found: list[Any] = client.containers.list(
        all=True, filters={"label": label}, ignore_removed=True
    )
    return found


def _services(client: docker.DockerClient, label: str) -> list[Any]:
    try:
        found: list[Any] = client.services.list(filters={"label": label})
    except docker.errors.APIError:  # this machine is no manager of a swarm
        return []
    return found


def _label(folder: Path | None) -> str:
    return FOLDER_LABEL if folder is None else f"{FOLDER_LABEL}={folder}"


def _labels(thing: Any) -> dict[str, str]:
    """The labels of a service, a container or a network."""
    inside = thing.attrs.get("Spec") or thing.attrs.get("Config") or {}
    return dict(thing.attrs.get("Labels") or inside.get("Labels") or {})
