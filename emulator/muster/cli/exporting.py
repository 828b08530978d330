"""`muster export`: writes the results of a run for other programs."""

from pathlib import Path

import click

from muster.cli.options import RUN, failures_as_status
from muster.emulator.run_folder.folder import shown


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
