"""Starts the fleet of a run folder in a Docker swarm, and waits until it has committed a round."""

import os
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from muster.common.clock import Clock
from muster.common.errors import LaunchFailed
from muster.common.processes import die_with_parent
from muster.emulator.following.run_progress import RunProgress
from muster.emulator.launch.docker.compose_command import Say
from muster.emulator.launch.docker.daemon import connected
from muster.emulator.launch.docker.stack import TaskDeaths
from muster.emulator.launch.starting import quoted
from muster.emulator.run_folder.journal_tail import Tail

_LOOK_S = 0.2
_SAY_EVERY_S = 2.0
_TOLD_S = 5.0
"""Most seconds for which Docker may not know yet of a death that the server has noticed."""

_DEATHS_TOLD = 2
"""Most containers, besides the server, whose last lines are told."""


class Deaths(Protocol):
    """What has died of a fleet, by name, with the status and the last lines of the log."""

    def dead(self, patient: bool = True) -> dict[str, str]:
        """Status and last lines of what has ended but should run.

        Args:
            patient: leave out what the swarm starts again.
        """

    def restarted(self) -> dict[str, str]:
        """The last lines of what died and what the swarm has started again."""


def start_stack(
    folder: Path, command: Sequence[str], run_progress: RunProgress, say: Say, clock: Clock
) -> None:
    """Start a fleet with `docker stack deploy`, and wait until a round is committed.

    Raises:
        LaunchFailed: that program or the run failed, or a container died.
    """
    tail, log = Tail(folder / "journal.jsonl"), folder / "logs/compose.log"
    with open(log, "ab") as output, connected() as client:
        starting = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # so that only this process gets Ctrl-C at the terminal
            preexec_fn=partial(die_with_parent, os.getpid()),  # noqa: PLW1509 (no gRPC here)
        )
        try:
            deaths = TaskDeaths(client, folder)
            wait_for_a_round(deaths, folder, starting, tail, run_progress, say, clock)
        finally:
            if starting.poll() is None:
                starting.kill()
            starting.wait()


def wait_for_a_round(
    deaths: Deaths,
    folder: Path,
    starting: "subprocess.Popen[bytes]",
    tail: Tail,
    run_progress: RunProgress,
    say: Say,
    clock: Clock,
) -> None:
    """Wait until the program that starts the containers is done and a round is committed, or the
    run has ended.

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
                f"docker stack deploy ended with status {starting.returncode}"
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
