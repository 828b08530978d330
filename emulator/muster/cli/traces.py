"""`muster trace`: import and export recordings of availability."""

from pathlib import Path

import click

from muster.cli.options import failures_as_status
from muster.common.files import refusal_of
from muster.emulator.run_folder.folder import shown


@click.group()
def trace() -> None:
    """Import recordings of links and of devices' lives, or export those of a run."""


@trace.command("import")
@click.option("--link", is_flag=True, help="SOURCE is about links.")
@click.option("--format", "form", help="Format of SOURCE; default: found by its content.")
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path), required=False)
@failures_as_status
def import_trace(source: Path, out: Path | None, link: bool, form: str | None) -> None:
    """Convert what others have recorded in SOURCE to OUT.

    With --link, SOURCE is a recorded link, or the profiles of another tool. It prints what was
    understood, and the lines of a scenario that use it; OUT, a .npy file, has the rates in a form
    that all processes share.

    Otherwise, SOURCE tells when devices were available, and OUT is a .csv or .json file for
    availability.kind = "trace"."""
    from muster.common.errors import ConfigError

    if link:
        from muster.emulator.links.importing import ENDING, import_link

        if out is not None and out.suffix != ENDING:
            raise ConfigError(f"OUT: expected a name that ends in {ENDING}, found {out}")
        click.echo("\n".join(import_link(source, out, form)))
        return
    if out is None:
        raise ConfigError("OUT: expected a .csv or .json file for the traces of availability")
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
