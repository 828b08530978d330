"""`muster trace`: import and export recordings of availability."""

from pathlib import Path

import click

from muster.cli.options import failures_as_status
from muster.common.files import refusal_of
from muster.emulator.run_folder.folder import shown


@click.group()
def trace() -> None:
    """Import recordings of availability, or export those of a run."""


@trace.command("import")
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@failures_as_status
def import_trace(source: Path, out: Path) -> None:
    """Convert FedScale's client_behave_trace SOURCE (a pickle, of which no code is run) to OUT, a
    .csv or .json file for availability.kind = "trace"."""
    from muster.client.availability.traces import write_traces
    from muster.emulator.fleet.fedscale import import_fedscale

    traces = import_fedscale(source)
    with refusal_of(f"{out} cannot be written", "name another file"):
        write_traces(out, traces)
    click.echo(f"{len(traces):,} traces in {shown(out)}")


@trace.command("export")
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@failures_as_status
def export_trace(folder: Path, out: Path) -> None:
    """Write which devices were available when in the run in FOLDER to OUT, a .csv or .json file."""
    from muster.client.availability.traces import write_traces
    from muster.emulator.export.traces import traces_of_run
    from muster.emulator.records.manifest import intact_folder

    traces = traces_of_run(intact_folder(folder))
    with refusal_of(f"{out} cannot be written", "name another file"):
        write_traces(out, traces)
    click.echo(f"{len(traces):,} traces in {shown(out)}")
