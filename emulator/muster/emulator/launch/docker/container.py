"""One container: how it is started, and the handle of it while it is alive."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import docker
import docker.errors
import docker.types
import requests.exceptions

from muster.emulator.launch.backend import ProgramUse
from muster.emulator.launch.docker.container_limits import CPU_PERIOD_US, LOG_DRIVER, LOG_OPTIONS
from muster.emulator.launch.docker.control_groups import kernel_use
from muster.emulator.launch.docker.services import (
    FOLDER_LABEL,
    NAME_LABEL,
    Service,
    Site,
    docker_name,
    project_of,
)


@dataclass(frozen=True)
class ContainerProgram:
    """A container.

    Args:
        find: returns Docker's object of the container.
        later: runs a function in a thread.
    """

    find: Callable[[], Any]
    later: Callable[[Callable[[], None]], object]

    def signal(self, number: int) -> None:
        # Docker takes some tenths of a second for it. The supervisor has more to do meanwhile, and
        # a fault may strike many containers.
        self.later(partial(self._signal, number))

    def _signal(self, number: int) -> None:
        with suppress(docker.errors.DockerException, requests.exceptions.RequestException):
            found = self.find()
            if found.status == "paused":  # a frozen process gets no signal
                found.unpause()
            found.kill(number)

    @property
    def identity(self) -> Mapping[str, Any]:
        return {"container": self.find().id}

    def use(self) -> ProgramUse | None:
        try:
            found = self.find()
            by_kernel = kernel_use(found.id, found.attrs["State"]["Pid"])
            return by_kernel or _use_by_docker(found)
        except (docker.errors.DockerException, requests.exceptions.RequestException, KeyError):
            return None  # it has ended

    def is_paused(self) -> bool:
        try:
            return bool(self.find().status == "paused")
        except docker.errors.APIError:
            return False


def _use_by_docker(found: Any) -> ProgramUse:
    """What Docker says that a container uses, which takes up to a second.

    Raises:
        KeyError: it has ended.
    """
    told = found.client.api.stats(found.id, stream=False, one_shot=True)
    cpu, memory = told["cpu_stats"], told["memory_stats"]
    return ProgramUse(
        cpu["cpu_usage"]["total_usage"] / 1e9,
        cpu["throttling_data"]["throttled_periods"],
        memory["usage"],
        memory["limit"],
    )


def run_container(client: docker.DockerClient, site: Site, service: Service) -> None:
    """Create and start the container of a service.

    Raises:
        docker.errors.DockerException, requests.exceptions.RequestException: Docker refuses it.
    """
    container = client.containers.create(**container_settings(site, service))
    project = project_of(site.folder)
    for network in service.networks[1:]:
        aliases = [docker_name(service.name)]
        client.networks.get(f"{project}_{network}").connect(container, aliases=aliases)
    container.start()


def container_settings(site: Site, service: Service) -> dict[str, Any]:
    """The settings with which docker-py creates a service's container, in its first network."""
    project, name = project_of(site.folder), docker_name(service.name)
    network = f"{project}_{service.networks[0]}"
    limits = service.limits
    return {
        "image": service.image,
        "command": list(service.command),
        "name": f"{project}-{name}",
        "hostname": name[:63],
        "user": "{}:{}".format(*site.user),
        "read_only": True,
        "tmpfs": dict(service.in_memory(site.user)),
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "init": True,
        "log_config": docker.types.LogConfig(type=LOG_DRIVER, config=dict(LOG_OPTIONS)),
        # Not nano_cpus, because Docker does not change it together with a quota.
        "cpu_period": CPU_PERIOD_US,
        "cpu_quota": int(min(limits.cpus, os.cpu_count() or 1) * CPU_PERIOD_US),
        "mem_limit": limits.memory_bytes,
        "memswap_limit": limits.memory_bytes,  # of memory and swap together, so it gets no swap
        "pids_limit": limits.processes,
        "environment": dict(service.environment),
        "mounts": [
            docker.types.Mount(m.target, m.source, type="bind", read_only=not m.writable)
            for m in service.mounts
        ],
        "ports": {f"{inside}/tcp": ("127.0.0.1", out) for inside, out in service.ports.items()},
        "labels": {FOLDER_LABEL: str(site.folder), NAME_LABEL: service.name},
        "device_requests": [docker.types.DeviceRequest(count=-1, capabilities=[["gpu"]])]
        if service.gpus
        else [],
        "network": network,
        "networking_config": {network: docker.types.EndpointConfig("1.41", aliases=[name])},
    }
