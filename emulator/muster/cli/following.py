"""`muster status`, `watch`, `live`, `stop`, `revoke`, `report`, `audit` and `export`: look at a
run, end it, revoke the credentials of a device, or write what the run has left."""

import json
import sys
from importlib import import_module
from pathlib import Path

import click

from muster.cli.options import FIGURES, JSON, PORT, RUN, failures_as_status, print_result
from muster.common.clock import WallClock
from muster.common.files import refusal_of
from muster.emulator.run_folder.folder import shown


@click.command()
@RUN
@JSON
@failures_as_status
def status(folder: Path, as_json: bool) -> None:
    """Show how the run in FOLDER stands (default runs/latest), or how it ended."""
    from muster.emulator.following.following import status_of

    found = status_of(folder)
    click.echo(found.to_json() if as_json else "\n".join(found.lines))


@click.command()
@RUN
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per event.")
@failures_as_status
def watch(folder: Path, as_json: bool) -> None:
    """Follow the run in FOLDER (default runs/latest) until it ends."""
    from muster.emulator.following import following
    from muster.emulator.following.progress import progress

    if as_json:
        for event in following.watch(folder):
            click.echo(json.dumps(event))
        return
    found = following.status_of(folder)
    click.echo("\n".join(found.lines))
    if found.state != "running":
        return
    display, goes_on = progress(sys.stdout, WallClock(), title=found.run), False
    try:
        for event in following.watch(folder):
            display.show(event)
    except KeyboardInterrupt:
        goes_on = True
    finally:
        display.close(goes_on=goes_on)


@click.command()
@RUN
@failures_as_status
def stop(folder: Path) -> None:
    """End the run in FOLDER (default runs/latest). Committed rounds stay, and it can be resumed."""
    from muster.emulator.run_folder.control import stop

    stop(folder)
    click.echo("asked the server to stop the run")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("device")
@failures_as_status
def revoke(folder: Path, device: str) -> None:
    """Revoke the credentials of DEVICE, and of the other devices of its process, in the run in
    FOLDER. The run goes on without them."""
    from muster.emulator.run_folder.control import revoke

    reply = revoke(folder, device)
    others = len(reply.clients) - 1
    with_others = f" with {others} other device{'s' * (others > 1)}" if others else ""
    click.echo(f"revoked {reply.process}{with_others}; the run goes on without it")


@click.command()
@RUN
@FIGURES
@failures_as_status
def report(folder: Path, kind: str | None) -> None:
    """Write report.html of FOLDER (default runs/latest) again, and figures on request; of a
    comparison, write its tables and its figure again."""
    from muster.emulator.comparison.run_set import PLAN
    from muster.emulator.records.manifest import intact_folder
    from muster.emulator.report import write_report

    advice = "make the folder writable"
    if (folder / PLAN).is_file():
        from muster.emulator.comparison import report_comparison

        with refusal_of(f"the tables of {shown(folder)} cannot be written", advice):
            page = report_comparison(folder, figures=kind or "png").folder / "comparison.md"
    else:
        run = intact_folder(folder)
        with refusal_of(f"the report of {shown(run)} cannot be written", advice):
            page = write_report(run, kind)
    click.echo(shown(page))


@click.command()
@RUN
@JSON
@click.option(
    "--evaluate",
    is_flag=True,
    help="Also open the task, and measure again the versions whose content is known.",
)
@click.option(
    "--train",
    is_flag=True,
    help="Also play the run again from its life record, and compare all that training decides.",
)
@failures_as_status
def audit(folder: Path, as_json: bool, evaluate: bool, train: bool) -> None:
    """Check the run in FOLDER (default runs/latest): it is the run that its scenario promises, each
    update counts at most once, and all of its files agree. Exits with 1 if they do not."""
    from muster.emulator.run_audit import auditing

    more = import_module("muster.laboratory.trained_again").CHECKS if train else ()
    result = auditing.audit(folder, evaluate=evaluate, more=more)
    print_result(lambda: auditing.describe(result), result.as_json, as_json)
    if not result.agrees:
        sys.exit(1)


@click.command()
@RUN
@click.option(
    "--to",
    type=click.Choice(["csv", "parquet", "tensorboard", "mlflow"]),
    required=True,
    help="csv, parquet: the tables of the ledger. tensorboard, mlflow: the metrics over rounds.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="OUT",
    help="The folder to write; default exports/TO/RUN, or exports/mlflow.",
)
@failures_as_status
def export(folder: Path, to: str, out: Path | None) -> None:
    """Write the results of the run in FOLDER (default runs/latest) for other programs, also while
    the run goes on. Nothing is overwritten."""
    from muster.emulator.export import export

    click.echo(shown(export(folder, to, out)))


@click.command()
@RUN
@PORT
@failures_as_status
def live(folder: Path, port: int) -> None:
    """Show the run in FOLDER (default runs/latest) as a page, until Ctrl-C.

    The run may go on, have ended or have been killed. The page is for browsers of this machine.
    """
    from muster.emulator.live.beside import described, require_extra
    from muster.emulator.live.page_address import open_port
    from muster.emulator.records.manifest import intact_folder

    require_extra()
    from muster.emulator.live.serving import serve

    found = intact_folder(folder)
    listening, address = open_port(port)
    with listening:
        click.echo("\n".join(described(address)))
        serve(found, listening, address, WallClock())
