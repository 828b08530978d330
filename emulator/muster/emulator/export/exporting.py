"""The export of a run, and the registry of its formats."""

from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from muster.common.errors import ConfigError
from muster.common.installation import install_command
from muster.emulator.export.event_files import EventFiles
from muster.emulator.export.metrics import metric_points
from muster.emulator.export.mlflow_store import write_mlflow
from muster.emulator.records.account import TABLES, Account
from muster.emulator.records.energy import energy_of
from muster.emulator.records.manifest import intact_folder
from muster.emulator.run_folder.folder import making, shown


def write_csv(account: Account, out: Path) -> None:
    """Write <table>.csv for every table. NULL is an empty field."""
    for name, table in _tables(account):
        table.to_csv(out / f"{name}.csv", index=False)


def write_parquet(account: Account, out: Path) -> None:
    """Write <table>.parquet for every table."""
    for name, table in _tables(account):
        table.to_parquet(out / f"{name}.parquet", engine="pyarrow", index=False)


def _tables(account: Account) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the tables of the ledger, and the energy that is computed from them."""
    yield from ((name, account.table(name)) for name in TABLES)
    if (energy := energy_of(account)) is not None:
        yield "energy", energy


def write_event_files(account: Account, out: Path) -> None:
    """Write the metrics, and the scenario as a text, for TensorBoard."""
    files = EventFiles(out)
    files.begin(account)
    files.log(metric_points(account))
    files.end(account)


class Exporter(NamedTuple):
    """A format of exports.

    Attributes:
        write: writes a run into a folder that exists.
        package: the package that it needs, which the extra of the same name as the format installs;
            empty: none.
        shares_folder: whether a folder may have several runs, and gets one more by an export.
    """

    write: Callable[[Account, Path], None]
    package: str = ""
    shares_folder: bool = False


EXPORTERS: Mapping[str, Exporter] = {
    "csv": Exporter(write_csv),
    "parquet": Exporter(write_parquet, "pyarrow"),
    "tensorboard": Exporter(write_event_files, "tensorboard"),
    "mlflow": Exporter(write_mlflow, "mlflow", shares_folder=True),
}


def export(folder: Path, to: str, out: Path | None = None) -> Path:
    """Write the results of the run in `folder`, which may still go on, for another program.

    Args:
        to: one of `EXPORTERS`.
        out: the folder to write; default exports/<to>/<name of the run folder>, or exports/<to> if
            the folder may have several runs.

    Returns:
        The folder.

    Raises:
        ConfigError: there is no run; the package is not installed; or `out` has files already or
            cannot be written.
        LedgerError: the run has no ledger that can be read.
    """
    exporter, run = EXPORTERS[to], intact_folder(folder)
    if exporter.package and find_spec(exporter.package) is None:
        raise ConfigError(
            f"--to {to} needs {exporter.package}, which is not installed; {install_command(to)}"
        )
    if out is None:
        out = Path("exports", to) if exporter.shares_folder else Path("exports", to, run.name)
    if not exporter.shares_folder and (out.is_file() or (out.is_dir() and any(out.iterdir()))):
        raise ConfigError(
            f"{shown(out)} is not an empty folder, and muster export overwrites nothing; name "
            f"another folder with --out"
        )
    with Account(run) as account, making(out):
        exporter.write(account, out)
    return out
