"""`muster up`: starts a fleet in containers and leaves it running.

With Docker Compose, a supervisor stays: a process of this machine that restarts what dies, injects
faults, and writes summary and report at the end (`muster.cli.detached`). In a swarm none stays. All
settings are written into the run folder, the swarm restarts what died, and there are no faults, no
record of the traffic, and no plan.
"""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from muster.common.clock import Clock, WallClock
from muster.common.errors import ConfigError, LaunchFailed
from muster.emulator.credentials.issuing import UNATTENDED_LIFETIME_S, certifier_of
from muster.emulator.detached.down import end
from muster.emulator.detached.stack_start import start_stack
from muster.emulator.detached.supervised_start import start_supervised
from muster.emulator.following.run_progress import RunProgress
from muster.emulator.launch.docker import checks
from muster.emulator.launch.docker.compose_command import (
    Say,
    compose_command,
    make_images,
    require_supported,
)
from muster.emulator.launch.docker.compose_project import prepare
from muster.emulator.launch.docker.daemon import connected, containers_of, hand_over, services_of
from muster.emulator.launch.docker.services import Site, project_of
from muster.emulator.launch.docker.stack import deploy_command, require_swarm
from muster.emulator.launch.process_configs import ProcessConfigs
from muster.emulator.records.manifest import unseal
from muster.emulator.run_folder.folder import (
    ADDRESS,
    COMPOSE,
    is_stack,
    new_run_folder,
    own,
    run_folder,
    shown,
)
from muster.emulator.runs.conclusion import conclude
from muster.emulator.runs.resumption import require_resumable
from muster.emulator.scenario.population import names_of
from muster.emulator.scenario.reading import read_scenario
from muster.emulator.scenario.scenario import Scenario

RESTARTS: Final = 100
"""`launch.restarts` of a scenario that does not set it: a fleet that is left running is disturbed,
and goes on."""


@dataclass(frozen=True, slots=True)
class Up:
    """A fleet that is up.

    Attributes:
        round: the last committed round when the fleet was found to be up.
        ended: whether the run has already ended.
        device: the name of a device.
        linked: whether faults of links can strike it.
        supervised: whether a supervisor stays, which can inject faults.
    """

    folder: Path
    devices: int
    containers: int
    round: int
    rounds: int
    seconds: float
    ended: bool
    device: str
    linked: bool
    supervised: bool


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
        LaunchFailed: a program died or Docker failed; nothing is left running.
    """
    clock = clock or WallClock()
    began = clock.monotonic()
    if swarm:
        require_supported(scenario)
    else:
        compose_command()
        scenario = left_running(scenario)
    make_images(scenario, say)
    checks.require(scenario)
    where = require_swarm(scenario) if swarm else None
    with new_run_folder(scenario.name, out, scenario.to_toml()) as new:
        folder = new.resolve()
        with _or_nothing(folder, say):
            if where is not None:
                say("preparing the task")
                asyncio.run(prepare(scenario, folder, clock, where))
            return _start(scenario, folder, say, clock, began)


def left_running(scenario: Scenario) -> Scenario:
    """The scenario with restarts for a fleet that is left running, unless it says how many."""
    if "restarts" in scenario.launch.model_fields_set:
        return scenario
    launch = scenario.launch.model_copy(update={"restarts": RESTARTS})
    return scenario.model_copy(update={"launch": launch})


def up_again(folder: Path, *, say: Say = print, clock: Clock | None = None) -> Up:
    """Start a fleet again from its run folder's compose file. The run continues where its ledger
    ends.

    Raises:
        ConfigError: there is no compose file, or the fleet is up; nothing was started.
        LaunchFailed: a program died or Docker failed; nothing is left running.
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
    with own(folder):
        with connected() as client:
            if services_of(client, folder):
                raise ConfigError(f"{folder} has containers; `muster down {folder}` removes them")
            if containers_of(client, folder):
                end(folder, say)  # what is left of a supervisor that was killed
        require_resumable(folder, scenario)
        unseal(folder)
    with _or_nothing(folder, say):
        return _start(scenario, folder, say, clock, began)


def describe(up: Up) -> str:
    """Describe a fleet that is up: its size, how to follow it and how to end it."""
    folder = shown(up.folder)
    took = f"{up.seconds:.1f} s after the start"
    state = f"round {up.round} of {up.rounds} is committed" if not up.ended else "the run has ended"
    kind = "partition" if up.linked else "crash"
    disturb = [
        f"  disturb  muster inject {folder} {kind} --target {up.device} --for-s 20",
        f"           muster pause {folder} {up.device} --for-s 20",
        f"  heal     muster heal {folder}",
    ]
    return "\n".join(
        [
            f"{up.devices} devices are up, {up.containers} containers in all; {state}, {took}",
            "",
            f"  follow   muster status {folder}",
            f"           muster watch {folder}",
            f"           muster live {folder}",
            *(disturb if up.supervised else []),
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
    run_progress, in_swarm = RunProgress(), is_stack(folder)
    if in_swarm:
        with own(folder):
            _deploy(scenario, folder, run_progress, say, clock)
    else:
        start_supervised(folder, run_progress, say, clock)
    device, linked = _example_device(scenario)
    with connected() as client:
        there = len(services_of(client, folder) or containers_of(client, folder))
    return Up(
        folder=folder,
        devices=len(run_progress.enrolled),
        containers=there,
        round=run_progress.round,
        rounds=run_progress.rounds,
        seconds=clock.monotonic() - began,
        ended=run_progress.status is not None,
        device=device,
        linked=linked,
        supervised=not in_swarm,
    )


def _example_device(scenario: Scenario) -> tuple[str, bool]:
    """A device to disturb, whose group has a link if any has one; and whether it has."""
    linked = {group.name for group in scenario.groups if group.gateway}
    known = names_of(scenario.groups)
    return next(
        ((client, True) for client, group in known if group in linked), (known[0][0], False)
    )


def _deploy(
    scenario: Scenario, folder: Path, run_progress: RunProgress, say: Say, clock: Clock
) -> None:
    require_swarm(scenario)
    for left in (folder / ADDRESS, *folder.glob("setup/*.words/*")):
        left.unlink(missing_ok=True)
    certifier = certifier_of(scenario.launch, True, clock, UNATTENDED_LIFETIME_S)
    ProcessConfigs(scenario, folder).issue_credentials(certifier)
    hand_over(folder, Site(scenario, folder).user)
    say("starting containers")
    start_stack(folder, deploy_command(folder, project_of(folder)), run_progress, say, clock)
