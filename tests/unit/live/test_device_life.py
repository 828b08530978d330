"""The life of a device, from ledgers that cannot be read."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from muster.common.errors import LedgerError
from muster.emulator.live.device_life import device_life
from muster.server.account.tables import SCHEMA_VERSION


def test_a_ledger_without_its_tables_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with closing(sqlite3.connect(path)) as ledger:
        ledger.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    with pytest.raises(LedgerError, match="no such table: clients"):
        device_life(path, "dev-0000")
