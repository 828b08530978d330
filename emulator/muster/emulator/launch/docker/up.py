"""Starting a fleet that Docker Compose keeps.

Nothing of muster's own stays beside the fleet. All that is settled at a run's start is written into
the run folder, with a compose file; Docker keeps the containers, and restarts what died as the file
says. What a supervisor does while a run goes on is not done: no restarts are counted, no traffic
is recorded, no plan is written.
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
from muster.emulator.scenario.scenario import Scenario, read_scenario

_LOOK_S = 0.2
_SAY_EVERY_S = 2.0
_TOLD_S = 1.0
_RESTARTS = 2
"""A device that dies so often before the first round will do so again."""

_LAST_LINES = 15


@dataclass(frozen=True, slots=True)
class Up:
    """A fleet that is up.

    Attributes:
        round: the last round committed when it was seen to be.
        ended: the run has ended already.
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
        say: told how it goes.

    Raises:
        ConfigError: it cannot be; nothing was started.
        LaunchFailed: something of it died; nothing is left running.
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
    """Start a fleet again from its run folder's compose file; it goes on where its ledger ends.

    Raises:
        ConfigError: there is none, or it is up; nothing was started.
        LaunchFailed: something of it died; nothing is left running.
    """
    clock = clock or WallClock()
    began = clock.monotonic()
    folder, compose = run_folder(folder), _compose()
    if not (folder / COMPOSE).is_file():
        raise ConfigError(
            f"{folder} has no {COMPOSE}: `muster up SCENARIO` writes one; go on with other runs by "
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
    """What is up, how to follow it and how to end it."""
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
    """The command that there is.

    Raises:
        ConfigError: there is none.
    """
    for command in (["docker", "compose"], ["docker-compose"]):
        with suppress(FileNotFoundError):
            said = subprocess.run([*command, "version"], capture_output=True, check=False)
            if said.returncode == 0:
                return command
    raise ConfigError(
        "there is neither `docker compose` nor docker-compose on this machine: install one, or "
        "use `muster run --backend docker`, which needs none"
    )


def _make_images(scenario: Scenario, say: Say) -> None:
    """Build muster's own images where they are missing and this is a clone of muster."""
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
                say(f"building the image {image}; this takes minutes, once")
                _build(script, target)


def _build(script: Path, target: str) -> None:
    done = subprocess.run([str(script), target], stdout=sys.stderr, check=False)
    if done.returncode:
        raise ConfigError(
            f"the image could not be built: {script} {target} ended with status "
            f"{done.returncode}, and said why above; see docs/containers.md"
        )


def _require(scenario: Scenario) -> None:
    """Look whether this way of starting can do what is asked for.

    Raises:
        ConfigError: it is not.
    """
    if scenario.verify:
        raise ConfigError(
            "verify: nobody measures links while Docker Compose starts everything; run `muster "
            "verify --backend docker` first, or `muster run --backend docker`"
        )


# --- into the run folder -------------------------------------------------------------------------


async def _prepare(scenario: Scenario, folder: Path, clock: Clock) -> None:
    """Write all that the containers start with."""
    blueprint, site = ProcessConfigs(scenario, folder), Site(scenario, folder)
    processes = Processes(folder, clock, lambda name, status: None)
    try:
        prepared = await processes.start_nursery(blueprint.nursery())
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
    services = fleet(blueprint, site, prepared, free_port)
    write_atomic(folder / COMPOSE, compose_text(project, services).encode())
    write_atomic(folder / ENVIRONMENT, environment_text(project).encode())


def fleet(
    blueprint: ProcessConfigs, site: Site, prepared: dict[str, Any], free_port: Callable[[], int]
) -> list[Service]:
    """The containers of a scenario; their programs' settings are written into the run folder.

    Args:
        prepared: what the nursery has learned of the task.
        free_port: a port of this machine, another one with every call.
    """
    outside = site.scenario.server.port or free_port()
    server = site.with_addresses(blueprint.server(prepared), outside)
    write_atomic(site.folder / "setup/server.json", server.to_json().encode())
    services = [site.server(outside), site.evaluation()]
    address, ports = f"server:{SERVER_PORT}", dict[str, Ports]()
    for config in blueprint.gateways(server.fleet_token, everywhere=True):
        no_words(config.words)
        leading = config.model_copy(update={"upstream": address})
        gateway, ports[config.group] = site.gateway(leading, free_port())
        services.append(gateway)
    packs = list(blueprint.packs(server, address, ports.get, STATE))
    for member in (member for pack in packs for member in pack.devices):
        (site.folder / "devices" / member.client).mkdir(exist_ok=True)
    return [*services, *(service for service, _ in site.devices(packs))]


# --- starting ------------------------------------------------------------------------------------


@contextmanager
def _or_nothing(folder: Path, say: Say) -> Iterator[None]:
    """Whatever ends this but success ends what was started, too; also Ctrl-C and SIGTERM."""
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
    tail, standing = Tail(folder / "journal.jsonl"), RunProgress()
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
            start_new_session=True,  # a Ctrl-C at the terminal is ours to answer
            env={**os.environ, "COMPOSE_HTTP_TIMEOUT": "600"},
            preexec_fn=partial(die_with_parent, os.getpid()),
        )
        try:
            _until_a_round(client, folder, starting, tail, standing, say, clock)
        finally:
            if starting.poll() is None:
                starting.kill()
            starting.wait()
        there = len(containers_of(client, folder))
    return Up(
        folder=folder,
        devices=len(standing.enrolled),
        containers=there,
        round=standing.round,
        rounds=standing.rounds,
        seconds=clock.monotonic() - began,
        ended=standing.status is not None,
    )


def _until_a_round(
    client: docker.DockerClient,
    folder: Path,
    starting: "subprocess.Popen[bytes]",
    tail: Tail,
    standing: RunProgress,
    say: Say,
    clock: Clock,
) -> None:
    """Look until compose is done and a round is committed, or the run has ended.

    Raises:
        LaunchFailed: compose failed, or something died.
    """
    committed, said, say_at = False, "", 0.0
    while starting.poll() is None or not (committed or standing.status):
        for event in tail.new():
            standing.happen(event)
            committed = committed or event["event"] == "round_committed"
        if starting.poll():
            raise LaunchFailed(
                f"Docker Compose ended with status {starting.returncode}"
                f"{_last_lines_of((folder / 'logs/compose.log').read_text(errors='replace'))}"
            )
        if standing.status in (None, "failed"):  # of a run that failed the death is the reason
            _look_for_deaths(client, folder, clock)
        line = f"{len(standing.enrolled)} of {standing.population} devices enrolled"
        if standing.population and line != said and clock.monotonic() >= say_at:
            say(line)
            said, say_at = line, clock.monotonic() + _SAY_EVERY_S
        clock.pause(_LOOK_S)
    if standing.status == "failed":
        _look_for_deaths(client, folder, clock)
        raise LaunchFailed(f"the run failed: {standing.detail}")


def _look_for_deaths(client: docker.DockerClient, folder: Path, clock: Clock) -> None:
    """Raise LaunchFailed if a container has ended that should not."""
    dead = _dead(client, folder)
    if list(dead) == ["server"]:  # it may have ended for another's death, which is told later
        clock.pause(_TOLD_S)
        dead = _dead(client, folder)
    for name in sorted(dead, key=lambda name: name == "server"):
        raise LaunchFailed(f"{name} ended with status {dead[name]}")


def _dead(client: docker.DockerClient, folder: Path) -> dict[str, str]:
    """Containers that have ended and should not: status and last lines by name."""
    found = {}
    for container in containers_of(client, folder):
        if container.status not in ("exited", "restarting", "dead"):
            continue
        status = container.attrs["State"]["ExitCode"]
        again = container.attrs["HostConfig"]["RestartPolicy"]["Name"] == "on-failure"
        if again and (status == 0 or container.attrs["RestartCount"] < _RESTARTS):
            continue
        log = container.logs(tail=_LAST_LINES).decode(errors="replace")
        found[name_of(container)] = f"{status}{_last_lines_of(log)}"
    return found


def _last_lines_of(log: str) -> str:
    lines = log.splitlines()[-_LAST_LINES:]
    if not lines:
        return ". It left no log"
    return "\n".join([". The last lines of its log:", *(f"  | {line}" for line in lines)])
