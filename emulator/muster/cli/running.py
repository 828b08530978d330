"""`muster run`, `up` and `down`: start and end fleets."""

import sys
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from muster.cli.options import (
    BACKEND,
    DATA,
    JSON,
    OPTIONAL_SCENARIO,
    PORT,
    RUN,
    SETTINGS,
    TRACK,
    failures_as_status,
    folder_option,
    print_result,
    require_one_source,
    tell_user,
)
from muster.common.clock import WallClock
from muster.common.errors import ConfigError
from muster.emulator.run_folder.folder import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from muster.emulator.launch.backend import BackendName
    from muster.emulator.runs.running import Begin


@click.command()
@OPTIONAL_SCENARIO
@folder_option("--out", "The run folder to create; default runs/NAME-TIME.")
@folder_option("--resume", "Continue the run in DIR where its ledger ends; without a scenario.")
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    help="With --resume: the number of rounds in all, in place of that of the scenario.",
)
@SETTINGS
@BACKEND
@DATA
@click.option(
    "--quiet", is_flag=True, help="Print only problems, how the run ended, and its summary."
)
@click.option(
    "--strict",
    is_flag=True,
    help="Exit with status 1 if a fault of the scenario was never observed.",
)
@click.option("--live", is_flag=True, help="Show the run as a page too, as `muster live` does.")
@PORT
@TRACK
@JSON
@failures_as_status
def run(
    scenario: Path | None,
    out: Path | None,
    resume: Path | None,
    rounds: int | None,
    backend: "BackendName",
    settings: tuple[str, ...],
    data: str | None,
    quiet: bool,
    strict: bool,
    live: bool,
    port: int,
    trackers: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run SCENARIO: start a server and a process for every device, and train."""
    from muster.emulator.following.progress import LenientProgress, progress
    from muster.emulator.records.summary import describe, failed_expectations
    from muster.emulator.run_folder.folder import run_folder
    from muster.emulator.runs import running
    from muster.emulator.scenario.reading import read_scenario

    require_one_source(scenario, resume)
    if resume is not None and (settings or out or data):
        raise ConfigError(
            "--resume continues the run as it began; expected no --set, --out or --data with it"
        )
    if rounds is not None and resume is None:
        raise ConfigError("--rounds is for --resume; for a new run, use --set server.rounds=N")
    if port and not live:
        raise ConfigError("--port is the port of the live page; expected --live with it")
    source = scenario if resume is None else run_folder(resume) / "scenario.toml"
    assert source is not None
    read = read_scenario(source, settings, data)
    with ExitStack() as stack:
        beside = [stack.enter_context(_page_beside(port))] if live else []
        if trackers:
            from muster.emulator.export.tracking import tracking

            beside.append(stack.enter_context(tracking(trackers, partial(click.echo, err=True))))

        def begin(folder: Path) -> None:
            for start in beside:
                start(folder)

        display = LenientProgress(progress(sys.stderr, WallClock(), title=read.name, quiet=quiet))
        stack.callback(display.close)
        if resume is not None:
            done = running.resume(
                resume, rounds=rounds, backend=backend, show=display.show, begin=begin
            )
        else:
            done = running.run(read, out=out, backend=backend, show=display.show, begin=begin)
    if not done.began:
        tell_user("the run is complete; nothing was started", quiet)
    print_result(
        lambda: describe(done.summary, Path(shown(done.folder))),
        lambda: {"folder": str(done.folder), **done.summary},
        as_json,
    )
    if done.status == "stopped":
        how = shown(done.folder)
        if backend != "processes":
            how = f"{how} --backend {backend}"
        click.echo(f"Resume it with: muster run --resume {how}", err=True)
        sys.exit(1)
    never = done.summary.get("vacuous", []) if strict else []
    if never:
        click.echo(f"--strict: faults that were never observed: {', '.join(never)}", err=True)
    if never or failed_expectations(done.summary):
        sys.exit(1)


@contextmanager
def _page_beside(port: int) -> "Iterator[Begin]":
    """Open a live page for a run that is about to begin, and say where it is."""
    from muster.emulator.live.beside import described, page_beside

    with page_beside(port) as (address, begin):
        click.echo("\n".join(described(address)), err=True)
        yield begin


@click.command()
@OPTIONAL_SCENARIO
@folder_option("--out", "The run folder to create; default runs/NAME-TIME.")
@folder_option("--resume", "Start the compose file in DIR again as it is; without a scenario.")
@click.option(
    "--swarm",
    is_flag=True,
    help="Start it in the Docker swarm of which this machine is a manager (docs/cluster.md).",
)
@SETTINGS
@DATA
@failures_as_status
def up(
    scenario: Path | None,
    out: Path | None,
    resume: Path | None,
    swarm: bool,
    settings: tuple[str, ...],
    data: str | None,
) -> None:
    """Start SCENARIO's fleet in containers, with Docker Compose, and leave it running."""
    from muster.emulator.detached import up as containers
    from muster.emulator.scenario.reading import read_scenario

    require_one_source(scenario, resume)
    say = partial(click.echo, err=True)
    if resume is not None:
        if settings or out or data or swarm:
            raise ConfigError(
                "--resume continues the run as it began; expected no --set, --out, --data or "
                "--swarm with it"
            )
        done = containers.up_again(resume, say=say)
    else:
        assert scenario is not None
        found = read_scenario(scenario, settings, data)
        done = containers.up(found, out=out, swarm=swarm, say=say)
    click.echo(containers.describe(done))


@click.command()
@RUN
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="End all fleets in containers, wherever their folders are.",
)
@failures_as_status
def down(folder: Path, everything: bool) -> None:
    """End the fleet of FOLDER (default runs/latest) and remove all it has in Docker."""
    from muster.emulator.detached import down as containers
    from muster.emulator.records.summary import describe
    from muster.emulator.run_folder.folder import run_folder

    say = partial(click.echo, err=True)
    if everything:
        containers.down_all(say)
    else:
        summary = containers.down(folder, say)
        if summary is not None:
            click.echo(describe(summary, Path(shown(run_folder(folder)))))
    click.echo("nothing of it is left in Docker", err=True)
