"""Checks, before anything starts, whether this machine has enough resources for a fleet."""

import os
import resource
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Self

from muster.common.errors import ConfigError
from muster.emulator.fleet.packs import packs_by_group
from muster.emulator.planning import server_view
from muster.emulator.scenario.population import population
from muster.emulator.scenario.scenario import Scenario
from muster.emulator.scenario.settings import Group
from muster.server.metrics.opening import require_library

_FILES_PER_PROCESS = 4
"""File descriptors that the server needs per device process: two connections and a waiting
upload."""

_FILES_BESIDE = 200
_MIB_PER_PROCESS = 20
_MIB_PER_DEVICE = 0.5
_MIB_BESIDE = 1200
"""Memory of a forked process, with room to train a small model; of a device's examples and update;
and of server, nursery and evaluation together."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of checking one resource; `advice` says what to do if it is not enough."""

    subject: str
    found: str
    enough: bool
    advice: str = ""


@dataclass(frozen=True, slots=True)
class FleetSize:
    """Number of devices in a fleet, and of the processes in which they run."""

    devices: int = 10
    processes: int = 10
    largest_pack: int = 1

    @classmethod
    def of(cls, scenario: Scenario | None) -> Self:
        """The fleet of a scenario; None: 10 devices."""
        if scenario is None:
            return cls()
        largest = max(min(g.count, g.devices_per_process) for g in scenario.groups)
        return cls(scenario.devices, scenario.processes, largest)

    def __str__(self) -> str:
        return f"{self.devices} devices in {self.processes} processes"


def describe(findings: Sequence[Finding]) -> str:
    """The findings as lines, with the advice of those that are not enough."""
    lines = []
    for finding in findings:
        lines.append(f"{'ok ' if finding.enough else 'NO '} {finding.subject}: {finding.found}")
        if not finding.enough and finding.advice:
            lines.append(f"     {finding.advice}")
    return "\n".join(lines)


def examine_machine(scenario: Scenario | None, data: Path | None) -> Sequence[Finding]:
    """Check file descriptors, cores, memory and the data directory of this machine, for the fleet
    of a scenario or for 10 devices."""
    fleet = FleetSize.of(scenario)
    return [examine_files(fleet), _cores(), _memory(fleet), examine_data(data)]


def require(scenario: Scenario) -> None:
    """Check that a scenario can run on this machine, before anything is made or started.

    Raises:
        ConfigError: data, population, file descriptors, GPUs or the port do not meet the
            scenario's needs.
    """
    scenario.task.check()
    server_view.require(scenario)
    require_room(FleetSize.of(scenario))
    require_gpus(scenario)
    require_ports(scenario)
    require_metrics(scenario)


def require_room(fleet: FleetSize) -> None:
    """Raise this process's limit on file descriptors as far as allowed, and check it.

    Raises:
        ConfigError: the limit is too low for a fleet of this size.
    """
    raise_file_limit(_files(fleet))
    finding = examine_files(fleet)
    if not finding.enough:
        raise ConfigError(f"{finding.subject}: {finding.found}. {finding.advice}")


def raise_file_limit(needed: int) -> None:
    """Raise this process's limit on file descriptors as far as allowed; if there is no hard limit,
    to `needed`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard or hard == resource.RLIM_INFINITY:
        wanted = needed if hard == resource.RLIM_INFINITY else hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def gpus(devices: Path = Path("/dev")) -> int:
    """Number of GPUs of this machine that CUDA shows to programs, counted by the device files of
    NVIDIA's driver. CUDA_VISIBLE_DEVICES may name fewer."""
    found = sum(1 for _ in devices.glob("nvidia[0-9]*"))
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return found
    shown = takewhile(lambda name: name and not name.startswith("-"), named.split(","))
    return min(found, sum(1 for _ in shown))


def on_gpu(group: Group, gpus: int) -> bool:
    """Whether the devices of a group train on a GPU, where there are so many."""
    wanted = group.device.torch_device
    return wanted == "cuda" or (wanted == "auto" and gpus > 0)


def require_gpus(scenario: Scenario) -> None:
    """Check that the devices that need a GPU have one.

    Raises:
        ConfigError: there is none, or there are too few.
    """
    found = gpus()
    training = {group.name for group in scenario.groups if on_gpu(group, found)}
    if not training:
        return
    packs = packs_by_group(scenario, population(scenario))
    needed = sum(len(packs[name]) for name in training)
    most = found * scenario.launch.devices_per_gpu
    if not found:
        raise ConfigError(
            "groups.device.torch_device: found cuda, but NVIDIA's driver finds no GPU on this "
            "machine; expected cpu, or auto to use a GPU only if there is one"
        )
    if needed > most:
        raise ConfigError(
            f"groups.device.torch_device: {needed} processes need a GPU, but there are {found} "
            f"GPUs for {scenario.launch.devices_per_gpu} processes each; put more devices into a "
            f"process (groups.devices_per_process) or raise launch.devices_per_gpu"
        )


def require_metrics(scenario: Scenario) -> None:
    """Check that the library of metrics is installed, if the server exports them.

    Raises:
        ConfigError: it is not.
    """
    if scenario.server.metrics_port is not None:
        require_library()


def require_ports(scenario: Scenario, host: str = "127.0.0.1") -> None:
    """Check that the ports of the server are free.

    Args:
        host: the address of this machine at which the server listens.

    Raises:
        ConfigError: one is not.
    """
    advice = "another port, or 0 for any free port"
    _require_port(host, "server.port", scenario.server.port, advice)
    if (port := scenario.server.metrics_port) is not None:
        _require_port(host, "server.metrics_port", port, "another port")


def _require_port(host: str, key: str, port: int, advice: str) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ConfigError(
                f"{key}: {port} on {host} cannot be used ({error.strerror}); choose {advice}"
            ) from None


def _files(fleet: FleetSize) -> int:
    """File descriptors of the process that needs most: the server, or the largest pack with its
    state files."""
    return max(_FILES_PER_PROCESS * fleet.processes, fleet.largest_pack) + _FILES_BESIDE


def examine_files(fleet: FleetSize) -> Finding:
    """Check the limit on file descriptors of this machine, which has the server."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    needed = _files(fleet)
    return Finding(
        "open files",
        f"up to {hard}, {needed} needed for {fleet}",
        hard == resource.RLIM_INFINITY or hard >= needed,
        f"raise the hard limit (ulimit -Hn {needed}), run fewer devices, or put more devices into "
        "a process (groups.devices_per_process)",
    )


def _cores() -> Finding:
    cores = len(os.sched_getaffinity(0))
    return Finding("cores", str(cores), enough=True)


def _memory(fleet: FleetSize) -> Finding:
    per_device = _MIB_PER_DEVICE * fleet.devices
    needed = round(_MIB_BESIDE + _MIB_PER_PROCESS * fleet.processes + per_device)
    available = _available_mib()
    return Finding(
        "memory",
        f"{available} MiB available, about {needed} MiB needed for {fleet}",
        available >= needed,
        "close other programs, run fewer devices, or put more devices into a process",
    )


def _available_mib() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) // 1024
    return 0


def examine_data(data: Path | None) -> Finding:
    """Check the data directory on this machine."""
    if data is None:
        return Finding(
            "data directory",
            "not set; the tasks digits and linear need none",
            enough=True,
        )
    return Finding(
        "data directory",
        str(data),
        data.is_dir(),
        "this folder does not exist: set --data or MUSTER_DATA to the folder that holds MNIST/raw",
    )
