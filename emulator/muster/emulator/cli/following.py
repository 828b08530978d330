"""`muster status`, `watch`, `stop` and `report`: a run that is there."""

from pathlib import Path

import click

from muster.common.files import refusal_of
from muster.emulator.cli.options import RUN, failures_as_status
from muster.emulator.runs.run_folder import shown


@click.command()
@RUN
@failures_as_status
def status(folder: Path) -> None:
    """How the run in FOLDER stands (default runs/latest)."""
    from muster.emulator.runs.control import standing

    for line in standing(folder):
        click.echo(line)


@click.command()
@RUN
@failures_as_status
def watch(folder: Path) -> None:
    """Follow the run in FOLDER until it ends, one JSON object per event."""
    from muster.emulator.runs.control import events

    for line in events(folder):
        click.echo(line)


@click.command()
@RUN
@failures_as_status
def stop(folder: Path) -> None:
    """End the run in FOLDER; what is committed stays, and it can be resumed."""
    from muster.emulator.runs.control import stop

    stop(folder)
    click.echo("asked it to stop")


@click.command()
@RUN
@failures_as_status
def report(folder: Path) -> None:
    """Write FOLDER's figures and report.html anew."""
    from muster.emulator.results.report import write_report
    from muster.emulator.runs.run_folder import run_folder

    run = run_folder(folder)
    with refusal_of(f"the report of {shown(run)} cannot be written", "make the folder writable"):
        page = write_report(run)
    click.echo(shown(page))
