"""What the watchdog holds: a process or a container that is paused or has a limit.

Every hold can be undone in any state, and it never means another program: a process is held by
pidfd, a container by its id.
"""

import os
import resource
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from muster.emulator.run_folder.limits import Limited

PERIOD_S: Final = 0.05
"""Period of the duty cycle by which a process gets a share of a core."""

_RESOURCES: Final = {"memory": resource.RLIMIT_DATA, "files": resource.RLIMIT_FSIZE}

_QUOTA_PERIOD_US: Final = 100_000

_FREEZES: Final = 10
"""How often Docker is asked to freeze a container at most."""

_IN_CONTAINER: Final = """
import os, resource, sys
name, soft = sys.argv[1].encode(), int(sys.argv[2])
for pid in filter(str.isdigit, os.listdir("/proc")):
    command = open(f"/proc/{pid}/cmdline", "rb").read().split(b"\\0")
    if name in command and int(pid) != os.getpid():
        hard = resource.prlimit(int(pid), resource.RLIMIT_FSIZE)[1]
        resource.prlimit(int(pid), resource.RLIMIT_FSIZE, (soft if soft >= 0 else hard, hard))
"""


class Hold(Protocol):
    """A program that is paused or limited.

    Attributes:
        held_back: how often the program was stopped by its share of a core while it was running.
    """

    held_back: int

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def limit(self, what: Limited, value: float) -> None: ...
    def free(self, what: Limited) -> None: ...

    def tick(self, now: float) -> float | None:
        """Do what is due, and return the time when something is due next; None: nothing is."""

    def release(self) -> None:
        """Undo everything."""


class HeldProcess:
    """A process of this machine. It gets a share of a core by being stopped in a part of every
    period, all its threads together."""

    def __init__(self, pid: int) -> None:
        self.held_back = 0
        self._pid, self._file = pid, os.pidfd_open(pid)
        self._paused = self._off = self._stopped = False
        self._share: float | None = None
        self._switch_at = 0.0
        self._before: dict[str, tuple[int, int]] = {}

    def pause(self) -> None:
        self._paused = True
        self._settle()

    def resume(self) -> None:
        self._paused = False
        with suppress(ProcessLookupError):
            self._settle()

    def limit(self, what: Limited, value: float) -> None:
        signal.pidfd_send_signal(self._file, 0)  # so that the number still means this process
        if what == "cpu":
            self._share, self._switch_at = value, 0.0
            return
        soft, hard = resource.prlimit(self._pid, _RESOURCES[what])
        self._before.setdefault(what, (soft, hard))
        resource.prlimit(self._pid, _RESOURCES[what], (int(value), hard))

    def free(self, what: Limited) -> None:
        with suppress(ProcessLookupError):
            if what == "cpu":
                self._share, self._off = None, False
                self._settle()
            elif what in self._before:
                signal.pidfd_send_signal(self._file, 0)
                resource.prlimit(self._pid, _RESOURCES[what], self._before.pop(what))

    def tick(self, now: float) -> float | None:
        if self._share is None:
            return None
        if now >= self._switch_at:
            self._off = not self._off
            share = 1 - self._share if self._off else self._share
            self._switch_at = now + PERIOD_S * share
            try:
                self.held_back += self._off and not self._paused and _is_running(self._pid)
                self._settle()
            except ProcessLookupError:
                self._share = None
                return None
        return self._switch_at

    def release(self) -> None:
        for what in (*self._before,):
            self.free(what)  # type: ignore[arg-type]
        self.free("cpu")
        self.resume()
        os.close(self._file)

    def _settle(self) -> None:
        stopped = self._paused or self._off
        if stopped != self._stopped:
            number = signal.SIGSTOP if stopped else signal.SIGCONT
            signal.pidfd_send_signal(self._file, number)
            self._stopped = stopped


class HeldContainer:
    """A container. Docker freezes all its processes, and the kernel limits them together."""

    held_back = 0

    def __init__(self, container: str) -> None:
        import docker  # only where containers are held

        self._client = docker.from_env()
        self._container = container
        self._host: dict[str, Any] = self._client.api.inspect_container(container)["HostConfig"]
        self._paused = False
        self._limited = set[Limited]()

    def pause(self) -> None:
        """Freeze the container. With version 1 of control groups Docker gives up on a busy machine
        ("unable to freeze"), and is asked again."""
        import docker.errors

        for left in reversed(range(_FREEZES)):
            try:
                self._client.api.pause(self._container)
                break
            except docker.errors.APIError as error:
                if not left or not error.is_server_error() or "unable to freeze" not in str(error):
                    raise
        self._paused = True

    def resume(self) -> None:
        import docker.errors

        if self._paused:
            self._paused = False
            with suppress(docker.errors.APIError):  # it has ended, or goes on already
                self._client.api.unpause(self._container)

    def limit(self, what: Limited, value: float) -> None:
        self._limited.add(what)
        self._set(what, value)

    def free(self, what: Limited) -> None:
        import docker.errors

        if what in self._limited:
            self._limited.discard(what)
            with suppress(docker.errors.APIError):  # it has ended
                self._set(what, None)

    def tick(self, now: float) -> float | None:
        return None

    def release(self) -> None:
        for what in (*self._limited,):
            self.free(what)
        self.resume()
        self._client.close()

    def _set(self, what: Limited, value: float | None) -> None:
        """Set a limit, or the one with which the container was started (None)."""
        api = self._client.api
        match what:
            case "cpu":
                before = self._host["CpuQuota"]
                quota = before if value is None else max(1000, int(value * _QUOTA_PERIOD_US))
                api.update_container(self._container, cpu_period=_QUOTA_PERIOD_US, cpu_quota=quota)
            case "memory":
                memory = self._host["Memory"] if value is None else int(value)
                # Without swap, as the container was started.
                api.update_container(self._container, mem_limit=memory, memswap_limit=memory)
            case "files":
                soft = "-1" if value is None else str(int(value))
                command = ["python", "-c", _IN_CONTAINER, "muster.server", soft]
                found = self._client.containers.get(self._container).exec_run(command)
                if found.exit_code:
                    raise OSError(str(found.output))


def _is_running(pid: int) -> bool:
    """Whether a thread of a process runs or waits for a core."""
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):
            if path.read_text().rpartition(")")[2].split()[0] == "R":
                return True
    return False
