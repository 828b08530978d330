"""`muster life`, `what-if` and `calibrate`: records of fleets, played again and fitted."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from muster.cli.options import (
    DATA,
    FIGURES,
    JSON,
    SETTINGS,
    NumberRange,
    failures_as_status,
    folder_option,
    print_result,
    watching,
)
from muster.common.files import refusal_of
from muster.emulator.run_folder.folder import shown

if TYPE_CHECKING:
    from muster.common.life_record import LifeRecord


@click.group()
def life() -> None:
    """Record the life of a fleet: who was called, answered and counted in every round."""


@life.command("export")
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@failures_as_status
def export_life(folder: Path, out: Path) -> None:
    """Write the life record of the run in FOLDER to OUT, a .csv, .csv.gz or .parquet file."""
    from muster.emulator.records.life import life_of_run
    from muster.emulator.records.manifest import intact_folder

    _write(out, life_of_run(intact_folder(folder)))


@life.command("import")
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--rounds", type=click.IntRange(1, 1_000_000), required=True, metavar="N",
              help="How many rounds the record has.")  # fmt: skip
@click.option("--round-s", type=NumberRange(0, min_open=True), required=True, metavar="S",
              help="How many seconds each round lasts.")  # fmt: skip
@click.option("--devices", type=int, metavar="N", help="The first N devices; default all.")
@click.option("--group", default="devices", show_default=True, metavar="NAME",
              help="The group of the devices in a scenario.")  # fmt: skip
@click.option("--format", "form", help="fedscale, flash or trace; default: found by its content.")
@failures_as_status
def import_life_log(
    source: Path,
    out: Path,
    rounds: int,
    round_s: float,
    devices: int | None,
    group: str,
    form: str | None,
) -> None:
    """Make a life record, OUT, of a log in SOURCE of when devices were available: FedScale's
    client_behave_trace, FLASH's state logs, or a table of availability."""
    from muster.laboratory.life_import import import_life

    record = import_life(
        source, rounds=rounds, round_s=round_s, form=form, devices=devices, group=group
    )
    _write(out, record)


def _write(out: Path, record: "LifeRecord") -> None:
    from muster.common.life_record import write_life

    with refusal_of(f"{out} cannot be written", "name another file"):
        write_life(out, record)
    click.echo(
        f"{len(record.rows):,} rows of {len(record.header.devices):,} devices in "
        f"{len(record.header.rounds):,} rounds in {shown(out)}"
    )


@life.command("show")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FILE", help="Draw it: a .png, .svg or .pdf."
)
@failures_as_status
def show_life(file: Path, out: Path | None) -> None:
    """Describe the life record in FILE, and draw what became of every device in every round."""
    from muster.common.life_record import read_life
    from muster.laboratory.life_view import describe, draw

    record = read_life(file)
    click.echo(describe(record))
    if out is not None:
        with refusal_of(f"{out} cannot be written", "name another file"):
            draw(record, out)
        click.echo(f"\n  {shown(out)}")


@click.command("what-if")
@click.argument("folders", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option(
    "--vary",
    multiple=True,
    metavar="KEY=A,B,…",
    help="Values to compare; with several --vary options, every combination is played.",
)
@click.option(
    "--grade",
    type=click.Choice(["arrivals", "life", "resimulated"]),
    default="arrivals",
    show_default=True,
    help="What is taken from the record: who counts in which round; the answers and durations of "
    "devices, so that deadlines, modes, goals and selection can be changed; or the seed alone, so "
    "that devices can be changed.",
)
@SETTINGS
@folder_option("--out", "The folder to create; default runs/NAME-what-if-TIME.")
@DATA
@FIGURES
@click.option("--quiet", is_flag=True, help="Print only problems and the table.")
@JSON
@failures_as_status
def what_if(
    folders: tuple[Path, ...],
    vary: tuple[str, ...],
    grade: str,
    settings: tuple[str, ...],
    out: Path | None,
    data: str | None,
    kind: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Play the runs in FOLDERS again with other settings: the same devices train in every round,
    and the same updates count. Without a change the model is the same, bit for bit. Other grades
    keep less of the recorded runs, and allow more changes."""
    from muster.emulator.comparison.variants import parse_vary
    from muster.laboratory.what_if import describe, numbers_of, what_if

    found = what_if(
        folders,
        settings=settings,
        vary=parse_vary(vary),
        grade=grade,
        data=data,
        out=out,
        figures=kind or "png",
        watch=partial(watching, quiet=quiet),
    )
    print_result(
        lambda: describe(found),
        lambda: {"folder": str(found.comparison.folder), **numbers_of(found)},
        as_json,
    )


@click.command()
@click.argument("sources", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option(
    "--held-out",
    type=float,
    default=0.25,
    show_default=True,
    metavar="SHARE",
    help="The part of the rounds that is not fitted, but predicted.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    default=1,
    show_default=True,
    metavar="N",
    help="The seed of the draw of these rounds.",
)
@folder_option("--out", "The folder to create; default runs/calibration-TIME.")
@JSON
@failures_as_status
def calibrate(
    sources: tuple[Path, ...], held_out: float, seed: int, out: Path | None, as_json: bool
) -> None:
    """Fit speeds and links of devices to the recorded rounds in SOURCES, run folders or CSV files,
    and predict rounds that were held out. The folder gets tables of devices, the lines of a
    scenario, the held-out rounds, and a picture of quantiles."""
    from muster.emulator.run_folder.folder import new_folder
    from muster.laboratory.calibration.calibrating import calibrate, recorded_in
    from muster.laboratory.calibration.files import write_files
    from muster.laboratory.calibration.view import describe, numbers_of

    folder = new_folder("calibration", out, None)
    found = calibrate(recorded_in(sources), seed, held_out)
    write_files(folder, found)
    print_result(
        lambda: f"{describe(found)}\n\n  {shown(folder)}",
        lambda: {"folder": str(folder), **numbers_of(found)},
        as_json,
    )
