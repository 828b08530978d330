"""Waits until a fleet that Docker Compose starts has committed a round."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker
import docker.errors

from muster.common.clock import Clock
from muster.common.errors import LaunchFailed
from muster.emulator.launch.docker.daemon import (
    containers_of,
    name_of,
)
from muster.emulator.launch.docker.down import Say
from muster.emulator.launch.starting import LAST_LINES, quoted
from muster.emulator.runs.journal_tail import Tail
from muster.emulator.runs.run_progress import RunProgress

if TYPE_CHECKING:
    import subprocess

_LOOK_S = 0.2
_SAY_EVERY_S = 2.0
_TOLD_S = 1.0
_RESTARTS = 2
"""A device that was restarted so often before the first round counts as dead."""


def wait_for_a_round(
    client: docker.DockerClient,
    folder: Path,
    starting: "subprocess.Popen[bytes]",
    tail: Tail,
    run_progress: RunProgress,
    say: Say,
    clock: Clock,
) -> None:
    """Wait until compose is done and a round is committed, or the run has ended.

    Raises:
        LaunchFailed: compose or the run failed, or a container died.
    """
    committed, said, say_at = False, "", 0.0
    while starting.poll() is None or not (committed or run_progress.status):
        for event in tail.new():
            run_progress.happen(event)
            committed = committed or event["event"] == "round_committed"
        if starting.poll():
            raise LaunchFailed(
                f"Docker Compose ended with status {starting.returncode}"
                f"{quoted((folder / 'logs/compose.log').read_text(errors='replace'))}"
            )
        if run_progress.status in (None, "failed"):  # a death is the reason of a run that failed
            _look_for_deaths(client, folder, clock)
        line = f"{len(run_progress.enrolled)} of {run_progress.population} devices enrolled"
        if run_progress.population and line != said and clock.monotonic() >= say_at:
            say(line)
            said, say_at = line, clock.monotonic() + _SAY_EVERY_S
        clock.pause(_LOOK_S)
    if run_progress.status == "failed":
        _look_for_deaths(client, folder, clock)
        raise LaunchFailed(f"the run failed: {run_progress.detail}")


def _look_for_deaths(client: docker.DockerClient, folder: Path, clock: Clock) -> None:
    """Raise LaunchFailed if a container has ended that should run."""
    dead = _dead(client, folder)
    # The server may have ended because another container died, which Docker reports later.
    # Docker may also be about to start that one again.
    if list(dead) == ["server"]:
        clock.pause(_TOLD_S)
        dead = _dead(client, folder, patient=False)
    for name in sorted(dead, key=lambda name: name == "server"):
        said = [f"{name} ended with status {dead[name]}"]
        if name == "server":
            said += _restarted(client, folder)
        raise LaunchFailed("\n".join(said))


def _restarted(client: docker.DockerClient, folder: Path) -> list[str]:
    """The containers that died and that Docker has started again, with their last lines."""
    return [
        f"{name_of(container)} died and was started again{_log_of(container)}"
        for container in containers_of(client, folder)
        if container.attrs["RestartCount"] and container.status == "running"
    ]


def _dead(client: docker.DockerClient, folder: Path, patient: bool = True) -> dict[str, str]:
    """Status and last lines of containers that have ended but should run, by name.

    Args:
        patient: leave out those that Docker starts again.
    """
    found = {}
    for container in containers_of(client, folder):
        if container.status not in ("exited", "restarting", "dead"):
            continue
        status = container.attrs["State"]["ExitCode"]
        again = container.attrs["HostConfig"]["RestartPolicy"]["Name"] == "on-failure"
        restarts_left = container.attrs["RestartCount"] < _RESTARTS
        if again and (status == 0 or (patient and restarts_left)):
            continue
        found[name_of(container)] = f"{status}{_log_of(container)}"
    return found


def _log_of(container: Any) -> str:
    return quoted(container.logs(tail=LAST_LINES).decode(errors="replace"))
