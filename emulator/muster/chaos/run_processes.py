"""The processes of a run on this machine, found by the log files into which they write."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

Part = Literal["server", "gateway", "device", "other"]
"""What a process is in its run. The nursery, the evaluation, the strategy and what is
starting are other."""


class RunProcess(NamedTuple):
    """A process of a run.

    Attributes:
        name: the name of its log, which is that of the device or pack if it is one.
    """

    pid: int
    part: Part
    name: str


def run_processes(folder: Path) -> list[RunProcess]:
    """The processes that write into the logs of a run folder, by their numbers."""
    logs = _logs(folder)
    return sorted(found for each in _processes() if (found := _of_run(each, logs)) is not None)


def kill_process(process: RunProcess, folder: Path) -> bool:
    """Kill a process of a run with SIGKILL; return whether it was still there.

    It is held by a pidfd and looked at again, so no other process with its number can be killed.
    """
    try:
        held = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if _of_run(Path(f"/proc/{process.pid}"), _logs(folder)) != process:
            return False
        signal.pidfd_send_signal(held, signal.SIGKILL)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(held)


def processes_with(text: str) -> list[str]:
    """The command lines of other processes, zombies aside, whose command line or open files name a
    text."""
    found = []
    for process in _processes():
        with suppress(OSError):
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            links = [os.readlink(link) for link in (process / "fd").iterdir()]
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and (text in command or any(text in link for link in links)):
                found.append(command)
    return found


def _logs(folder: Path) -> str:
    return str((folder / "logs").resolve())


def _of_run(process: Path, logs: str) -> RunProcess | None:
    with suppress(OSError):
        log = Path(os.readlink(process / "fd/2"))
        if str(log.parent) == logs:
            command = (process / "cmdline").read_bytes().split(b"\0")
            return RunProcess(int(process.name), _part(log.stem, command), log.stem)
    return None


def _part(log: str, command: list[bytes]) -> Part:
    if b"muster.server" in command:
        return "server"
    if log.startswith("gateway-"):
        return "gateway"
    return "other" if log in ("server", "nursery", "evaluation", "strategy") else "device"


def _processes() -> Iterator[Path]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            yield folder
