"""Exports the tables of the ledger, a file for each table."""

from pathlib import Path

from muster.emulator.records.account import TABLES, Account


def write_csv(account: Account, out: Path) -> None:
    """Write <table>.csv for every table. NULL is an empty field."""
    for name in TABLES:
        account.table(name).to_csv(out / f"{name}.csv", index=False)


def write_parquet(account: Account, out: Path) -> None:
    """Write <table>.parquet for every table."""
    for name in TABLES:
        account.table(name).to_parquet(out / f"{name}.parquet", engine="pyarrow", index=False)
