"""The backend of `muster up`: Docker Compose makes the containers, from the run folder's file.

The supervisor starts and restarts them in the same order as with `--backend docker`. What a person
has edited in the file holds: limits, images, environment, and services of their own, which are
started when the devices are.
"""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import docker.errors
import yaml

from muster.client.processes.config import NurseryProcess, PackProcess
from muster.common.errors import ConfigError, LaunchFailed
from muster.emulator.launch.docker.compose_command import compose_command
from muster.emulator.launch.docker.compose_project import write_compose_file
from muster.emulator.launch.docker.containers import Containers
from muster.emulator.launch.docker.daemon import (
    SERVICE_LABEL,
    containers_of_project,
    keep_log,
    name_of,
)
from muster.emulator.launch.docker.services import Service, docker_name
from muster.emulator.launch.starting import quoted
from muster.emulator.run_folder.folder import COMPOSE

_CREATED = "created"
"""The state of a container that has been made and never started."""

_PUBLISHED = re.compile(r"127\.0\.0\.1:(\d+):\d+")


class ComposeContainers(Containers):
    """Starts the containers of a compose file. If there is none yet, it writes the file."""

    async def start_nursery(self, config: NurseryProcess) -> dict[str, Any]:
        prepared = await super().start_nursery(config)
        if not (self._folder / COMPOSE).is_file():
            write_compose_file(self._scenario, self._folder, prepared, None)
        return prepared

    def _port_of(self, name: str) -> int:
        return published_port(self._folder / COMPOSE, docker_name(name))

    def _make(self) -> None:
        """Make the networks and all containers, but start none."""
        self._compose("up", "--no-start")

    async def _start_all(self, services: Sequence[Service]) -> None:
        if services:  # one command for all, because each takes about a second
            await self._start(*services)

    def _run(self, services: Sequence[Service]) -> None:
        """Start containers. Docker Compose starts them the first time, because it joins them to
        their networks then."""
        first = []
        for service in services:
            try:
                container = self._container(service.name)
            except docker.errors.NotFound:  # somebody has removed it
                first.append(service)
                continue
            if container.status == _CREATED:
                first.append(service)
            else:
                container.start()
        if first:
            self._up(*(docker_name(service.name) for service in first))

    async def start_packs(self, configs: Sequence[PackProcess]) -> None:
        await super().start_packs(configs)
        await self._call(self._start_others)

    def _start_others(self) -> None:
        """Start the services that a person has added."""
        there = containers_of_project(self._client, self._folder)
        if others := [str(each.labels[SERVICE_LABEL]) for each in there if each.status == _CREATED]:
            self._up(*others)

    def _remove_all(self) -> None:
        """Remove the containers of the fleet. Those that a person has added go on until
        `muster down`, such as a Grafana that shows how the run was."""
        fleet, others = self._turns.keys(), False
        for container in containers_of_project(self._client, self._folder):
            if name_of(container) in fleet or container.status == _CREATED:
                keep_log(container, self._folder)
                container.remove(force=True, v=True)
            else:
                others = True
        if not others:
            super()._remove_all()

    def _up(self, *services: str) -> None:
        self._compose("up", "--detach", "--no-deps", "--no-recreate", *services)

    def _compose(self, *arguments: str) -> None:
        """Run Docker Compose on the file.

        Raises:
            LaunchFailed: it failed; the message has what it said last.
        """
        file, log = self._folder / COMPOSE, self._folder / "logs/compose.log"
        with open(log, "ab") as output:
            before = output.tell()
            done = subprocess.run(
                [*compose_command(), "--file", str(file), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "COMPOSE_HTTP_TIMEOUT": "600"},
                check=False,
            )
        if done.returncode:
            said = log.read_bytes()[before:].decode(errors="replace")
            raise LaunchFailed(f"Docker Compose ended with status {done.returncode}{quoted(said)}")


def published_port(file: Path, service: str) -> int:
    """The port of this machine at which a compose file publishes a service.

    Raises:
        ConfigError: the file does not say it as `muster up` writes it.
    """
    try:
        told: Mapping[str, Any] = yaml.safe_load(file.read_text())["services"][service]
        found = _PUBLISHED.fullmatch(told["ports"][0])
    except (yaml.YAMLError, LookupError, TypeError):
        found = None
    if found is None:
        raise ConfigError(
            f"{file}: expected services.{service}.ports to begin with 127.0.0.1:PORT:PORT, as "
            f"`muster up` writes it; the first of them must stay"
        )
    return int(found[1])
