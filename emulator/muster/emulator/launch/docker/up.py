"""`muster up`: starts a fleet that Docker keeps running, with Docker Compose or as a swarm's stack.

No process of muster stays beside the fleet. All settings that are made at a run's start are written
into the run folder, with a compose file. Docker keeps the containers, and restarts those that died
as the file says. There is no supervisor during the run, so no restarts are counted, no traffic is
recorded, and no plan is written.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from muster.common.clock import Clock, WallClock
from muster.common.errors import ConfigError, LaunchFailed
from muster.common.processes import die_with_parent
from muster.emulator.credentials.issuing import UNATTENDED_LIFETIME_S, certifier_of
from muster.emulator.launch import COMPOSE
from muster.emulator.launch.docker import checks
from muster.emulator.launch.docker.compose_command import (
    compose_command,
    make_images,
    require_supported,
)
from muster.emulator.launch.docker.compose_project import prepare
from muster.emulator.launch.docker.compose_start import ContainerDeaths, wait_for_a_round
from muster.emulator.launch.docker.daemon import (
    connected,
    containers_of,
    hand_over,
    services_of,
)
from muster.emulator.launch.docker.down import Say, end
from muster.emulator.launch.docker.services import Site, project_of
from muster.emulator.launch.docker.stack import (
    TaskDeaths,
    deploy_command,
    is_stack,
    require_swarm,
)
from muster.emulator.runs.conclusion import conclude
from muster.emulator.runs.journal_tail import Tail
from muster.emulator.runs.process_configs import ProcessConfigs
from muster.emulator.runs.resumption import require_resumable
from muster.emulator.runs.run_folder import ADDRESS, new_run_folder, own, run_folder, shown
from muster.emulator.runs.run_progress import RunProgress
from muster.emulator.scenario.reading import read_scenario
from muster.emulator.scenario.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Up:
    """A fleet that is up.

    Attributes:
        round: the last committed round when the fleet was found to be up.
        ended: whether the run has already ended.
    """

    folder: Path
    devices: int
    containers: int
    round: int
    rounds: int
    seconds: float
    ended: bool


def up(
    scenario: Scenario,
    *,
    out: Path | None = None,
    swarm: bool = False,
    say: Say = print,
    clock: Clock | None = None,
) -> Up:
    """Start a scenario's fleet in containers; return once a round is committed.

    Args:
        out: the run folder to make; default `runs/<name>-<time>`.
        swarm: start it in this machine's Docker swarm, and not with Docker Compose.
        say: called with each message about the progress.

    Raises:
        ConfigError: the fleet cannot be started this way; nothing was started.
        LaunchFailed: a container died or Docker failed; nothing is left running.
    """
    clock = clock or WallClock()
    began = clock.monotonic()
    if not swarm:
        compose_command()
    require_supported(scenario)
    make_images(scenario, say)
    checks.require(scenario)
    where = require_swarm(scenario) if swarm else None
    with new_run_folder(scenario.name, out, scenario.to_toml()) as new:
        folder = new.resolve()
        with own(folder), _or_nothing(folder, say):
            say("preparing the task")
            asyncio.run(prepare(scenario, folder, clock, where))
            return _start(scenario, folder, say, clock, began)


def up_again(folder: Path, *, say: Say = print, clock: Clock | None = None) -> Up:
    """Start a fleet again from its run folder's compose file. The run continues where its ledger
    ends.

    Raises:
        ConfigError: there is no compose file, or the fleet is up; nothing was started.
        LaunchFailed: a container died or Docker failed; nothing is left running.
    """
    clock = clock or WallClock()
    began = clock.monotonic()
    folder = run_folder(folder)
    if not (folder / COMPOSE).is_file():
        raise ConfigError(
            f"{folder} has no {COMPOSE}: `muster up SCENARIO` writes one; resume other runs with "
            f"muster run --resume {folder}"
        )
    scenario = read_scenario(folder / "scenario.toml")
    with connected() as client:
        if containers_of(client, folder) or services_of(client, folder):
            raise ConfigError(f"{folder} has containers; `muster down {folder}` removes them")
    with own(folder):
        require_resumable(folder, scenario)
        with _or_nothing(folder, say):
            return _start(scenario, folder, say, clock, began)


def describe(up: Up) -> str:
    """Describe a fleet that is up: its size, how to follow it and how to end it."""
    folder = shown(up.folder)
    took = f"{up.seconds:.1f} s after the start"
    state = f"round {up.round} of {up.rounds} is committed" if not up.ended else "the run has ended"
    return "\n".join(
        [
            f"{up.devices} devices are up, {up.containers} containers in all; {state}, {took}",
            "",
            f"  follow   muster status {folder}",
            f"           muster watch {folder}",
            f"  report   muster report {folder}",
            f"  stop     muster stop {folder}",
            f"  remove   muster down {folder}",
            f"  compose  {folder}/{COMPOSE}",
        ]
    )


@contextmanager
def _or_nothing(folder: Path, say: Say) -> Iterator[None]:
    """End all containers if the body fails in any way, also by Ctrl-C or SIGTERM."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    except BaseException as error:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        say("ending what was started")
        end(folder, say)
        conclude(folder)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if isinstance(error, KeyboardInterrupt):
            raise LaunchFailed(f"stopped; nothing is left running. Its files: {folder}") from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _start(scenario: Scenario, folder: Path, say: Say, clock: Clock, began: float) -> Up:
    in_swarm = is_stack(folder)
    if in_swarm:
        require_swarm(scenario)
        starter, command = "docker stack deploy", deploy_command(folder, project_of(folder))
    else:
        starter = "Docker Compose"
        command = [*compose_command(), "--file", str(folder / COMPOSE), "up", "--detach"]
    tail, run_progress = Tail(folder / "journal.jsonl"), RunProgress()
    for left in (folder / ADDRESS, *folder.glob("setup/*.words/*")):
        left.unlink(missing_ok=True)
    certifier = certifier_of(scenario.launch, True, clock, UNATTENDED_LIFETIME_S)
    ProcessConfigs(scenario, folder).issue_credentials(certifier)
    hand_over(folder, Site(scenario, folder).user)
    log = folder / "logs/compose.log"
    say("starting containers")
    with open(log, "ab") as output, connected() as client:
        starting = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # so that only this process gets Ctrl-C at the terminal
            env={**os.environ, "COMPOSE_HTTP_TIMEOUT": "600"},
            preexec_fn=partial(die_with_parent, os.getpid()),
        )
        try:
            watched = TaskDeaths if in_swarm else ContainerDeaths
            deaths = watched(client, folder)
            wait_for_a_round(deaths, folder, starting, starter, tail, run_progress, say, clock)
        finally:
            if starting.poll() is None:
                starting.kill()
            starting.wait()
        there = len(services_of(client, folder) or containers_of(client, folder))
    return Up(
        folder=folder,
        devices=len(run_progress.enrolled),
        containers=there,
        round=run_progress.round,
        rounds=run_progress.rounds,
        seconds=clock.monotonic() - began,
        ended=run_progress.status is not None,
    )
