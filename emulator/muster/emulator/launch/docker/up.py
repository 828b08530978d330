"""`muster up`: starts a fleet that Docker Compose keeps running.

No process of muster stays beside the fleet. All settings that are made at a run's start are written
into the run folder, with a compose file. Docker keeps the containers, and restarts those that died
as the file says. There is no supervisor during the run, so no restarts are counted, no traffic is
recorded, and no plan is written.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import docker
import docker.errors

from muster.common.clock import Clock, WallClock
from muster.common.errors import ConfigError, LaunchFailed
from muster.common.files import write_atomic
from muster.common.processes import die_with_parent
from muster.emulator.gateway.config import Ports
from muster.emulator.gateway.words import no_words
from muster.emulator.launch import COMPOSE
from muster.emulator.launch.docker import containers
from muster.emulator.launch.docker.compose import (
    ENVIRONMENT,
    Project,
    compose_text,
    environment_text,
)
from muster.emulator.launch.docker.daemon import (
    connected,
    containers_of,
    free_port,
    hand_over,
    name_of,
)
from muster.emulator.launch.docker.down import Say, end
from muster.emulator.launch.docker.services import SERVER_PORT, STATE, Service, Site, project_of
from muster.emulator.launch.processes import Processes
from muster.emulator.runs.conclusion import conclude
from muster.emulator.runs.journal_tail import Tail
from muster.emulator.runs.process_configs import ProcessConfigs
from muster.emulator.runs.resumption import require_resumable
from muster.emulator.runs.run_folder import new_run_folder, own, run_folder, shown
from muster.emulator.runs.run_progress import RunProgress
from muster.emulator.scenario.reading import read_scenario
from muster.emulator.scenario.scenario import Scenario

_LOOK_S = 0.2
_SAY_EVERY_S = 2.0
_TOLD_S = 1.0
_RESTARTS = 2
"""A device that was restarted so often before the first round counts as dead."""

_LAST_LINES = 15


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
    scenario: Scenario, *, out: Path | None = None, say: Say = print, clock: Clock | None = None
) -> Up:
    """Start a scenario's fleet with Docker Compose; return once a round is committed.

    Args:
        out: the run folder to make; default `runs/<name>-<time>`.
        say: called with each message about the progress.

    Raises:
        ConfigError: the fleet cannot be started this way; nothing was started.
        LaunchFailed: a container died or Docker failed; nothing is left running.
    """
    clock = clock or WallClock()
    began = clock.monotonic()
    compose = _compose()
    _require(scenario)
    _make_images(scenario, say)
    containers.require(scenario)
    with new_run_folder(scenario.name, out, scenario.to_toml()) as new:
        folder = new.resolve()
        with own(folder), _or_nothing(folder, say):
            say("preparing the task")
            asyncio.run(_prepare(scenario, folder, clock))
            return _start(scenario, folder, compose, say, clock, began)


def up_again(folder: Path, *, say: Say = print, clock: Clock | None = None) -> Up:
    """Start a fleet again from its run folder's compose file. The run continues where its ledger
    ends.

    Raises:
        ConfigError: there is no compose file, or the fleet is up; nothing was started.
        LaunchFailed: a container died or Docker failed; nothing is left running.
    """
    clock = clock or WallClock()
    began = clock.monotonic()
    folder, compose = run_folder(folder), _compose()
    if not (folder / COMPOSE).is_file():
        raise ConfigError(
            f"{folder} has no {COMPOSE}: `muster up SCENARIO` writes one; resume other runs with "
            f"muster run --resume {folder}"
        )
    scenario = read_scenario(folder / "scenario.toml")
    with connected() as client:
        if containers_of(client, folder):
            raise ConfigError(f"{folder} has containers; `muster down {folder}` removes them")
    with own(folder):
        require_resumable(folder)
        with _or_nothing(folder, say):
            return _start(scenario, folder, compose, say, clock, began)


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


# --- before anything starts ----------------------------------------------------------------------


def _compose() -> list[str]:
    """The compose command of this machine.

    Raises:
        ConfigError: there is none.
    """
    for command in (["docker", "compose"], ["docker-compose"]):
        with suppress(FileNotFoundError):
            said = subprocess.run([*command, "version"], capture_output=True, check=False)
            if said.returncode == 0:
                return command
    raise ConfigError(
        "there is neither `docker compose` nor docker-compose on this machine: install one of "
        "them, or use `muster run --backend docker`, which needs neither"
    )


def _make_images(scenario: Scenario, say: Say) -> None:
    """Build muster's own images if they are missing and this is a clone of muster's repository."""
    script = Path(__file__).resolve().parents[5] / "deploy/images.sh"
    wanted = {
        "server": scenario.launch.server_image,
        "client": scenario.launch.client_image,
    }
    with connected() as client:
        for target, image in wanted.items():
            if image != f"muster-{target}:{version('muster')}" or not script.is_file():
                continue
            try:
                client.images.get(image)
            except docker.errors.ImageNotFound:
                say(f"building the image {image}; this takes minutes, but only once")
                _build(script, target)


def _build(script: Path, target: str) -> None:
    done = subprocess.run([str(script), target], stdout=sys.stderr, check=False)
    if done.returncode:
        raise ConfigError(
            f"the image could not be built: {script} {target} ended with status "
            f"{done.returncode}; its output above says why, and see docs/containers.md"
        )


def _require(scenario: Scenario) -> None:
    """Check that `muster up` supports the scenario.

    Raises:
        ConfigError: it does not.
    """
    if scenario.verify:
        raise ConfigError(
            "verify: links cannot be measured before the run if Docker Compose starts everything; "
            "run `muster verify --backend docker` first, or `muster run --backend docker`"
        )


# --- into the run folder -------------------------------------------------------------------------


async def _prepare(scenario: Scenario, folder: Path, clock: Clock) -> None:
    """Write all files with which the containers start."""
    configs, site = ProcessConfigs(scenario, folder), Site(scenario, folder)
    processes = Processes(folder, clock, lambda name, status: None)
    try:
        prepared = await processes.start_nursery(configs.nursery())
    finally:
        await processes.close()
    project = Project(
        name=project_of(folder),
        scenario=scenario.name,
        folder=folder,
        shown=shown(folder),
        user=site.user,
        cores=os.cpu_count() or 1,
        networks=site.networks(),
        restarts=scenario.launch.restarts,
    )
    services = fleet(configs, site, prepared, free_port)
    write_atomic(folder / COMPOSE, compose_text(project, services).encode())
    write_atomic(folder / ENVIRONMENT, environment_text(project).encode())


def fleet(
    configs: ProcessConfigs, site: Site, prepared: dict[str, Any], free_port: Callable[[], int]
) -> list[Service]:
    """The containers of a scenario's fleet. Writes their programs' settings into the run folder.

    Args:
        prepared: `examples` and `schema` of the task, as the nursery reported them.
        free_port: returns a free port of this machine, another one with every call.
    """
    outside = site.scenario.server.port or free_port()
    server = site.with_addresses(configs.server(prepared), outside)
    write_atomic(site.folder / "setup/server.json", server.to_json().encode())
    services = [site.server(outside), site.evaluation()]
    address, ports = f"server:{SERVER_PORT}", dict[str, Ports]()
    for config in configs.gateways(server.fleet_token, everywhere=True):
        no_words(config.words)
        leading = config.model_copy(update={"upstream": address})
        gateway, ports[config.group] = site.gateway(leading, free_port())
        services.append(gateway)
    packs = list(configs.packs(server, address, ports.get, STATE))
    for member in (member for pack in packs for member in pack.devices):
        (site.folder / "devices" / member.client).mkdir(exist_ok=True)
    return [*services, *(service for service, _ in site.devices(packs))]


# --- starting ------------------------------------------------------------------------------------


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


def _start(
    scenario: Scenario, folder: Path, compose: list[str], say: Say, clock: Clock, began: float
) -> Up:
    tail, run_progress = Tail(folder / "journal.jsonl"), RunProgress()
    for left in (folder / "setup/address.json", *folder.glob("setup/*.words/*")):
        left.unlink(missing_ok=True)
    hand_over(folder, Site(scenario, folder).user)
    log = folder / "logs/compose.log"
    say("starting containers")
    with open(log, "ab") as output, connected() as client:
        starting = subprocess.Popen(
            [*compose, "--file", str(folder / COMPOSE), "up", "--detach"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # so that only this process gets Ctrl-C at the terminal
            env={**os.environ, "COMPOSE_HTTP_TIMEOUT": "600"},
            preexec_fn=partial(die_with_parent, os.getpid()),
        )
        try:
            _until_a_round(client, folder, starting, tail, run_progress, say, clock)
        finally:
            if starting.poll() is None:
                starting.kill()
            starting.wait()
        there = len(containers_of(client, folder))
    return Up(
        folder=folder,
        devices=len(run_progress.enrolled),
        containers=there,
        round=run_progress.round,
        rounds=run_progress.rounds,
        seconds=clock.monotonic() - began,
        ended=run_progress.status is not None,
    )


def _until_a_round(
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
                f"{_last_lines_of((folder / 'logs/compose.log').read_text(errors='replace'))}"
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
    return _last_lines_of(container.logs(tail=_LAST_LINES).decode(errors="replace"))


def _last_lines_of(log: str) -> str:
    lines = log.splitlines()[-_LAST_LINES:]
    if not lines:
        return ". It left no log"
    return "\n".join([". The last lines of its log:", *(f"  | {line}" for line in lines)])
