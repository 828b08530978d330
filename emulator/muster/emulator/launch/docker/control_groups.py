"""What the kernel counts of a container, read from the container's control group.

Docker's statistics have the same numbers, but a call takes between a tenth of a second and more
than a second, which is longer than some faults last. The files of version 1 and of version 2 are
described in the kernel's Documentation/scheduler/sched-bwc.rst, Documentation/admin-guide/cgroup-v1
and Documentation/admin-guide/cgroup-v2.rst.
"""

from pathlib import Path

from muster.emulator.launch.backend import ProgramUse

_NO_LIMIT = 1 << 63


def kernel_use(container: str, pid: int, root: Path = Path("/")) -> ProgramUse | None:
    """What a container uses; None if this machine does not show its control group, for example
    because the daemon is on another machine or in a virtual one.

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
