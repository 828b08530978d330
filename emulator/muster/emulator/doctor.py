"""What this machine can carry, before anything starts."""

import os
import resource
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from muster.common.errors import ConfigError

_FILES_PER_DEVICE = 4
"""Descriptors the server needs per device: two connections, and an upload that waits."""

_FILES_BESIDE = 200
_MIB_PER_DEVICE = 25
_MIB_BESIDE = 1200
"""A forked device's private memory with room to train; server, nursery and evaluation."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at; `advice` says what to do when it is not enough."""

    subject: str
    found: str
    enough: bool
    advice: str = ""


def examine(devices: int, data: Path | None) -> Sequence[Finding]:
    """Look at descriptors, cores, memory and the data directory, for a fleet of `devices`."""
    return [_descriptors(devices), _cores(), _memory(devices), _data(data)]


def require_room(devices: int) -> None:
    """Raise the limit on descriptors as far as it may go, and check it.

    Raises:
        ConfigError: it is too low for this many devices.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard or hard == resource.RLIM_INFINITY:
        needed = _files(devices) if hard == resource.RLIM_INFINITY else hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    finding = _descriptors(devices)
    if not finding.enough:
        raise ConfigError(f"{finding.subject}: {finding.found}. {finding.advice}")


def require_port(port: int) -> None:
    """Check that the server's port is free.

    Raises:
        ConfigError: it is not.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ConfigError(
                f"server.port: {port} on 127.0.0.1 cannot be had ({error.strerror}); choose "
                f"another, or 0 for any free one"
            ) from None


def _files(devices: int) -> int:
    return _FILES_PER_DEVICE * devices + _FILES_BESIDE


def _descriptors(devices: int) -> Finding:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    needed = _files(devices)
    return Finding(
        "open files",
        f"up to {hard}, {needed} needed for {devices} devices",
        hard == resource.RLIM_INFINITY or hard >= needed,
        f"raise the hard limit (ulimit -Hn {needed}) or run fewer devices",
    )


def _cores() -> Finding:
    cores = len(os.sched_getaffinity(0))
    return Finding("cores", str(cores), enough=True)


def _memory(devices: int) -> Finding:
    needed = _MIB_BESIDE + _MIB_PER_DEVICE * devices
    available = _available_mib()
    return Finding(
        "memory",
        f"{available} MiB available, about {needed} MiB needed for {devices} devices",
        available >= needed,
        "close other programs or run fewer devices",
    )


def _available_mib() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) // 1024
    return 0


def _data(data: Path | None) -> Finding:
    if data is None:
        return Finding(
            "data directory",
            "not set; digits and linear need none",
            enough=True,
        )
    return Finding(
        "data directory",
        str(data),
        data.is_dir(),
        "there is no such folder: set --data or MUSTER_DATA to the one that holds MNIST/raw",
    )
