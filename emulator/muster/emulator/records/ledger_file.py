"""Opens a run's ledger for reading, without pandas, which takes seconds to import."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from muster.common.errors import LedgerError
from muster.common.full_disk import is_of_system
from muster.server.account.tables import LEDGER_TABLES, OLDEST_SCHEMA, SCHEMA_VERSION

UNREADABLE = sqlite3.DatabaseError, UnicodeDecodeError
"""What a damaged ledger raises; the second, if a text in it is not UTF-8."""


@contextmanager
def read_ledger(path: Path) -> Iterator[sqlite3.Connection]:
    """The ledger at `path`, as `open_ledger` opens it, until the body ends.

    Raises:
        LedgerError: as `open_ledger`, or the body cannot read it.
    """
    with closing(open_ledger(path)) as ledger:
        try:
            yield ledger
        except UNREADABLE as error:
            raise damaged(path, error) from error


def open_ledger(path: Path) -> sqlite3.Connection:
    """Open the ledger at `path` for reading, in a transaction that sees one moment. An older ledger
    gets the tables and columns of today, without values.

    Raises:
        LedgerError: there is no ledger, it is damaged, or its schema cannot be read.
    """
    if not path.is_file():
        raise LedgerError(
            f"{path}: expected the ledger of a run, found no such file; give the folder that "
            f"`muster run` printed (runs/latest is the newest). A run that failed before its "
            f"server started has only logs/"
        )
    try:
        connection, version = _begin(path)
    except sqlite3.DatabaseError as error:
        raise damaged(path, error) from error
    if OLDEST_SCHEMA <= version < SCHEMA_VERSION:
        _renew(connection)
    elif version != SCHEMA_VERSION:
        connection.close()
        raise LedgerError(
            f"{path}: expected schema version {SCHEMA_VERSION}, found {version}; read this run "
            f"with the version of muster that wrote it (0: nothing has written it yet)"
        )
    return connection


def _renew(connection: sqlite3.Connection) -> None:
    for table in LEDGER_TABLES:
        there = connection.execute("SELECT name FROM pragma_table_info(?)", (table.name,))
        if view := table.view_of_older({name for (name,) in there}):
            connection.execute(view)


def _begin(path: Path) -> tuple[sqlite3.Connection, int]:
    # If there is no write-ahead log, no process has the ledger open and the file is complete. With
    # `immutable`, SQLite leaves no log of its own and can read an archive on a read-only disk. A
    # server that starts now writes to a new log first, not to the file.
    alone = not path.with_name(f"{path.name}-wal").exists()
    uri = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if alone else ''}"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("BEGIN")
        return connection, connection.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.DatabaseError:
        connection.close()
        raise


def damaged(path: Path, error: object) -> LedgerError:
    """Return the error for a ledger that cannot be read."""
    if isinstance(error, sqlite3.Error) and is_of_system(error):
        return LedgerError(
            f"{path} cannot be read: {error}; see whether its disk has room and inodes left (df, "
            f"df -i) and you may read the file and its folder"
        )
    return LedgerError(
        f"{path}: expected a readable ledger, found: {error}; restore the file from a "
        f"copy, or repeat the run (`sqlite3 {path.name} .recover` saves what can be read)"
    )
