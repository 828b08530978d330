"""Finds containers of a Docker Compose fleet that should run but do not, for `muster status`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker.errors
import requests.exceptions
import yaml

from muster.common.errors import ConfigError
from muster.emulator.launch.docker.daemon import connected, containers_of, name_of
from muster.emulator.launch.docker.services import docker_name
from muster.emulator.launch.docker.stack import problems
from muster.emulator.run_folder.folder import (
    COMPOSE,
    has_detached_supervisor,
    is_stack,
    resume_command,
    shown,
)

_SHOWN = 10
"""Most lines to show."""


def missing(folder: Path) -> list[str]:
    """The containers missing from the fleet in a run folder, as a sentence for each with advice.

    Empty for a fleet that was not started by `muster up`.
    """
    file = folder / COMPOSE
    if not file.is_file():
        return []
    try:
        with connected() as client:
            if is_stack(folder):
                return _most(list(problems(client, folder)))
            containers = containers_of(client, folder)
    except (ConfigError, docker.errors.DockerException, requests.exceptions.RequestException) as e:
        return [f"the state of its containers is unknown because Docker does not answer: {e}"]
    if not containers:  # `muster down` has removed them
        return []
    absent = list(_without_a_container(file, containers))
    if has_detached_supervisor(folder):  # it starts what has ended, or fails the run
        return _most([*absent, *_paused(folder, containers)])
    more = [*_ended(containers), *_paused(folder, containers)]
    return _most([*_unsupervised(folder), *absent, *more])


def _most(found: list[str]) -> list[str]:
    more = len(found) - _SHOWN
    return found if more <= 0 else [*found[:_SHOWN], f"and {more} more containers do not run"]


def _without_a_container(file: Path, containers: list[Any]) -> Iterator[str]:
    there = {docker_name(name_of(container)) for container in containers}
    for service in yaml.safe_load(file.read_text())["services"]:
        if service not in there:
            yield (
                f"{service} has no container: `docker compose --file {file} up --detach {service}` "
                "makes it"
            )


def _unsupervised(folder: Path) -> Iterator[str]:
    where = Path(shown(folder))
    yield (
        f"its supervisor has ended, so nothing is restarted, and no faults can be injected: "
        f"`{resume_command(where)}` starts both again"
    )


def _ended(containers: list[Any]) -> Iterator[str]:
    """Report containers that ended or do not run. Those that ended with status 0 have done their
    work and are not reported."""
    for container in sorted(containers, key=name_of):
        state = container.attrs["State"]
        if container.status in ("exited", "dead", "created") and state["ExitCode"] != 0:
            yield (
                f"{name_of(container)} ended with status {state['ExitCode']}: "
                f"`docker logs {container.name}` shows its log, "
                f"`docker start {container.name}` starts it again"
            )
        elif container.status == "restarting":
            yield (
                f"{name_of(container)} keeps ending, {container.attrs['RestartCount']} "
                f"times so far, now with status {state['ExitCode']}: "
                f"`docker logs {container.name}` shows its log"
            )


def _paused(folder: Path, containers: list[Any]) -> Iterator[str]:
    for container in sorted(containers, key=name_of):
        if container.status == "paused":
            yield (
                f"{name_of(container)} is paused: `muster unpause {shown(folder)}` resumes it if a "
                f"fault did that, otherwise `docker unpause {container.name}`"
            )
