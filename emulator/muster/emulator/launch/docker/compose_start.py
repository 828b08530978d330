"""Waits until a fleet that Docker Compose or a swarm starts has committed a round."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

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
_TOLD_S = 5.0
"""Most seconds for which Docker may not know yet of a death that the server has noticed."""

_DEATHS_TOLD = 2
"""Most containers, besides the server, whose last lines are told."""

_RESTARTS = 2
"""A device that was restarted so often before the first round counts as dead."""


class Deaths(Protocol):
    """What has died of a fleet, by name, with the status and the last lines of the log."""

    def dead(self, patient: bool = True) -> dict[str, str]:
        """Status and last lines of what has ended but should run.

        Args:
            patient: leave out what Docker starts again.
        """

    def restarted(self) -> dict[str, str]:
        """The last lines of what died and what Docker has started again."""


def wait_for_a_round(
    deaths: Deaths,
    folder: Path,
    starting: "subprocess.Popen[bytes]",
    starter: str,
    tail: Tail,
    run_progress: RunProgress,
    say: Say,
    clock: Clock,
) -> None:
    """Wait until the program that starts the containers is done and a round is committed, or the
    run has ended.

    Args:
        starter: what people call that program.

    Raises:
        LaunchFailed: that program or the run failed, or a container died.
    """
    committed, said, say_at = False, "", 0.0
    while starting.poll() is None or not (committed or run_progress.status):
        dead = deaths.dead()  # before the journal, in which a server says why it ends
        for event in tail.new():
            run_progress.happen(event)
            committed = committed or event["event"] == "round_committed"
        if run_progress.status == "failed":
            break  # whatever the program still waits for
        if starting.poll():
            raise LaunchFailed(
                f"{starter} ended with status {starting.returncode}"
                f"{quoted((folder / 'logs/compose.log').read_text(errors='replace'))}"
            )
        if dead and run_progress.status is None:
            raise LaunchFailed("\n".join(_told_of(dead, deaths, clock)))
        line = f"{len(run_progress.enrolled)} of {run_progress.population} devices enrolled"
        if run_progress.population and line != said and clock.monotonic() >= say_at:
            say(line)
            said, say_at = line, clock.monotonic() + _SAY_EVERY_S
        clock.pause(_LOOK_S)
    if run_progress.status == "failed":
        why = [f"the run failed: {run_progress.detail}", *_behind_the_end(deaths, clock)]
        raise LaunchFailed("\n".join(why))


def _told_of(dead: dict[str, str], deaths: Deaths, clock: Clock) -> list[str]:
    """What to tell of containers that have ended but should run."""
    if list(dead) == ["server"]:  # perhaps because another container died
        return _behind_the_end(deaths, clock)
    return [f"{name} ended with status {how}" for name, how in dead.items() if name != "server"][:1]


def _behind_the_end(deaths: Deaths, clock: Clock) -> list[str]:
    """What died, with last lines, when the server ends or has ended, in the order of its
    importance.

    Docker may know of a death only some time after the server has noticed it, and it may have
    started that container again by then. So this waits until Docker knows that the server has
    ended, and that the evaluation has died, which ends the server. It does not wait without end,
    because the server may also have failed for another reason.
    """
    limit = clock.monotonic() + _TOLD_S
    while True:
        dead, restarted = deaths.dead(patient=False), deaths.restarted()
        server = dead.pop("server", None)
        if (server and "evaluation" in {*dead, *restarted}) or clock.monotonic() >= limit:
            break
        clock.pause(_LOOK_S)
    told = {name: f"{name} died and was started again{log}" for name, log in restarted.items()}
    told |= {name: f"{name} ended with status {how}" for name, how in dead.items()}
    first = sorted(told, key=lambda name: (name != "evaluation", name))[:_DEATHS_TOLD]
    own = [f"server ended with status {server}"] if server else []
    return [*(told[name] for name in first), *own]


class ContainerDeaths:
    """What has died of the containers of this machine."""

    def __init__(self, client: docker.DockerClient, folder: Path) -> None:
        self._client = client
        self._folder = folder

    def dead(self, patient: bool = True) -> dict[str, str]:
        """As `Deaths.dead`."""
        found = {}
        for container in containers_of(self._client, self._folder):
            if container.status not in ("exited", "restarting", "dead"):
                continue
            status = container.attrs["State"]["ExitCode"]
            again = container.attrs["HostConfig"]["RestartPolicy"]["Name"] == "on-failure"
            restarts_left = container.attrs["RestartCount"] < _RESTARTS
            if again and (status == 0 or (patient and restarts_left)):
                continue
            found[name_of(container)] = f"{status}{_log_of(container)}"
        return found

    def restarted(self) -> dict[str, str]:
        """As `Deaths.restarted`."""
        return {
            name_of(container): _log_of(container)
            for container in containers_of(self._client, self._folder)
            if container.attrs["RestartCount"] and container.status == "running"
        }


def _log_of(container: Any) -> str:
    return quoted(container.logs(tail=LAST_LINES).decode(errors="replace"))
