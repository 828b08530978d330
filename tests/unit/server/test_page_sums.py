"""The checksums of a ledger's pages: damage is found, and nothing else is."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from muster.common.errors import LedgerError
from muster.server.account.ledger import Ledger
from muster.server.account.page_sums import PageSums, require_page_sums, sums_path
from muster.server.account.run_rows import EvaluationRow, StoredVector


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger that its server has closed."""
    path = tmp_path / "ledger.sqlite"
    ledger = Ledger(path)
    ledger.begin("run", [], 0.0, 0, {})
    ledger.enter_initial(StoredVector("x", 3, os.urandom(20_000)), None)
    ledger.close()
    return path


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


def test_a_ledger_that_was_closed_passes(path: Path) -> None:
    assert sums_path(path).exists()
    require_page_sums(path)
    Ledger(path).close()


def test_every_damaged_page_is_found(path: Path) -> None:
    whole = path.read_bytes()
    for page in range(len(whole) // 4096):
        flip(path, 4096 * page + 2000)
        with pytest.raises(LedgerError, match=f"page {page + 1} of {len(whole) // 4096} is not"):
            Ledger(path)
        path.write_bytes(whole)
    require_page_sums(path)


def test_a_missing_page_is_found(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4096])
    with pytest.raises(LedgerError, match="is missing"):
        require_page_sums(path)


def test_a_page_in_the_log_may_differ(path: Path) -> None:
    ledger = Ledger(path)
    ledger.end("failed", "why", 1.0)  # in the log; a kill follows
    require_page_sums(path)
    flip(path, 2000)
    with pytest.raises(LedgerError, match="page 1 of"):
        require_page_sums(path)
    flip(path, 2000)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(PASSIVE)")
        require_page_sums(path)  # as if the server had died between the checkpoint and the sums
    ledger.close()
    require_page_sums(path)


def test_a_long_log_is_copied_and_the_sums_follow(path: Path) -> None:
    ledger = Ledger(path)
    before = sums_path(path).read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("muster.server.account.ledger.LOG_BYTES", 10_000)
        for version in range(1, 9):
            ledger.end("failed", "x" * 20_000, float(version))
            require_page_sums(path)
    assert sums_path(path).read_bytes() != before
    ledger.close()


def test_the_pages_of_a_log_are_those_of_its_newest_frames(tmp_path: Path) -> None:
    file = tmp_path / "ledger.sqlite"
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA wal_autocheckpoint = 0")
        database.execute("CREATE TABLE t (body)")
        database.execute("PRAGMA wal_checkpoint(PASSIVE)")
        empty = file.stat().st_size // 4096
        for _ in range(150):  # each fills a page of its own
            database.execute("INSERT INTO t VALUES (zeroblob(4000))")
        grown = PageSums(file).logged()
        database.execute("PRAGMA wal_checkpoint(PASSIVE)")
        full = file.stat().st_size // 4096
        # The log begins anew, and most of its older frames stay behind these.
        database.execute("UPDATE t SET body = 'x' WHERE rowid = 1")
        renewed = PageSums(file).logged()
    assert grown >= set(range(empty + 1, full + 1))
    assert len(grown) > 150
    assert len(renewed) <= 4


def test_damaged_sums_are_refused_and_missing_ones_pass(path: Path) -> None:
    flip(sums_path(path), 40)
    with pytest.raises(LedgerError, match="sums is damaged"):
        require_page_sums(path)
    sums_path(path).write_bytes(b"")
    with pytest.raises(LedgerError, match="sums is damaged"):
        require_page_sums(path)
    sums_path(path).unlink()
    require_page_sums(path)


def test_sums_that_cannot_be_written_are_removed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("muster.server.account.page_sums.write_atomic", full)
    PageSums(path).record(())
    assert not sums_path(path).exists()
    require_page_sums(path)


@pytest.mark.slow
def test_sums_that_are_renewed_are_those_of_the_whole_file(path: Path) -> None:
    ledger = Ledger(path)
    metrics = {f"m{n}": 0.5 for n in range(4_000)}
    for version in range(200):  # 12 MB, and so several checkpoints
        ledger.evaluated(EvaluationRow(version, version, 0.5, None, metrics, 0.1, 1.0))
    ledger.close()
    renewed = sums_path(path).read_bytes()
    require_page_sums(path)
    PageSums(path).record(())
    assert sums_path(path).read_bytes() == renewed
