"""One container: how it is started, and the handle of it while it is alive."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import docker
import docker.errors
import docker.types
import requests.exceptions

from muster.emulator.launch.backend import ProgramUse
from muster.emulator.launch.docker.container_limits import CPU_PERIOD_US, LOG_DRIVER, LOG_OPTIONS
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


_NO_LIMIT = 1 << 63


def kernel_use(container: str, pid: int, root: Path = Path("/")) -> ProgramUse | None:
    """What a container uses; None if this machine does not show its control group, for example
    because the daemon is on another machine or in a virtual one.

    Docker's statistics have the same numbers, but a call takes between a tenth of a second and more
    than a second, which is longer than some faults last. The files of version 1 and of version 2
    are described in the kernel's Documentation/scheduler/sched-bwc.rst, and in cgroup-v1 and
    cgroup-v2.rst of its Documentation/admin-guide.

    Args:
        container: Docker's id of it, in full.
        pid: the process id of its first process, as Docker says it.
        root: the directory that has `proc` and `sys`.
    """
    try:
        groups = _groups(container, (root / f"proc/{pid}/cgroup").read_text())
        mounted = root / "sys/fs/cgroup"
        if "cpu" in groups:
            return _version_1(*(mounted / n / groups[n] for n in ("cpu", "cpuacct", "memory")))
        return _version_2(mounted / groups[""])
    except (OSError, KeyError, ValueError):
        return None


def _groups(container: str, told: str) -> dict[str, str]:
    """The paths of the groups that are this container's, by controller; "" for version 2."""
    lines = (line.split(":", 2) for line in told.splitlines())
    return {
        controller: path.lstrip("/")
        for _, controllers, path in lines
        for controller in controllers.split(",")
        if container in path  # else the number means another process here
    }


def _version_1(cpu: Path, cpuacct: Path, memory: Path) -> ProgramUse:
    return ProgramUse(
        int((cpuacct / "cpuacct.usage").read_text()) / 1e9,
        _counts(cpu / "cpu.stat")["nr_throttled"],
        int((memory / "memory.usage_in_bytes").read_text()),
        int((memory / "memory.limit_in_bytes").read_text()),
    )


def _version_2(group: Path) -> ProgramUse:
    counts = _counts(group / "cpu.stat")
    most = (group / "memory.max").read_text().strip()
    return ProgramUse(
        counts["usage_usec"] / 1e6,
        counts["nr_throttled"],
        int((group / "memory.current").read_text()),
        _NO_LIMIT if most == "max" else int(most),
    )


def _counts(file: Path) -> dict[str, int]:
    return {key: int(value) for key, value in map(str.split, file.read_text().splitlines())}
