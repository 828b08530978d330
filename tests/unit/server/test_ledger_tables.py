"""The tables of the ledger follow from the classes of their rows."""

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from hashlib import sha256
from typing import Annotated, Any, NamedTuple

from muster.server.account.columns import LedgerTable, Stored
from muster.server.account.tables import SCHEMA_VERSION, schema

NEWEST = (16, "ea2a5fd99b612e488542d935d00bb7464ad4258893bcf05987674ac6ff3a864f")
"""The version of the schema, and the SHA-256 of what SQLite knows of its tables. A change of the
tables needs a new version (`Stored(since=…)`), and both are then entered here."""


class PartRow(NamedTuple):
    """A row of a table that has every kind of column."""

    place: int
    group: str
    loss: Annotated[float, Stored(null=True)]
    size: Annotated[int, Stored(default=7)]
    late: Annotated[float | None, Stored(since=14)]
    call: Annotated[int, Stored(since=14, older="place + 1")]
    known: bool = True
    body: bytes | None = None


PARTS = LedgerTable("parts", PartRow, ["place", "group"])


def described(script: str) -> Mapping[str, Any]:
    """What SQLite knows of the tables of a schema: their columns, their indexes with the conditions
    of these, and whether they are without rowids."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(script)
        made = db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'").fetchall()
        indexes = db.execute("SELECT tbl_name, sql FROM sqlite_schema WHERE type = 'index'")
        found = [(table, sql) for table, sql in indexes.fetchall() if sql]
        return {
            name: (
                db.execute(f"PRAGMA table_xinfo({name})").fetchall(),
                [sql for table, sql in found if table == name],
                "WITHOUT ROWID" in sql,
            )
            for name, sql in made
        }


def test_a_change_of_the_schema_has_a_new_version() -> None:
    digest = sha256(json.dumps(described(schema()), sort_keys=True).encode()).hexdigest()
    assert (SCHEMA_VERSION, digest) == NEWEST


def test_a_column_has_the_type_of_its_field_and_what_is_said_of_it() -> None:
    columns, _, without_rowid = described(PARTS.ddl)["parts"]
    assert without_rowid
    assert [column[1:6] for column in columns] == [
        ("place", "INTEGER", 1, None, 1),
        ("group", "TEXT", 1, None, 2),
        ("loss", "REAL", 0, None, 0),
        ("size", "INTEGER", 1, "7", 0),
        ("late", "REAL", 0, None, 0),
        ("call", "INTEGER", 1, None, 0),
        ("known", "INTEGER", 1, "1", 0),
        ("body", "BLOB", 0, None, 0),
    ]


def test_a_row_is_inserted_as_it_is() -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(PARTS.ddl)
        row = PartRow(1, "g", float("nan"), 2, 0.5, 3, False, b"ab")
        db.executemany(*PARTS.insert([row]))
        assert db.execute(f"SELECT {PARTS.names} FROM parts").fetchall() == [
            (1, "g", None, 2, 0.5, 3, 0, b"ab")
        ]


def test_an_older_ledger_gets_the_columns_and_tables_that_it_lacks() -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute('CREATE TABLE parts (place, "group", loss, size, known, body)')
        db.execute("INSERT INTO parts VALUES (4, 'g', 0.5, 2, 1, NULL)")
        there = [name for (name,) in db.execute("SELECT name FROM pragma_table_info('parts')")]
        db.execute(PARTS.view_of_older(there) or "")
        assert db.execute(f"SELECT {PARTS.names} FROM parts").fetchall() == [
            (4, "g", 0.5, 2, None, 5, 1, None)
        ]
        db.execute("DROP VIEW parts")
        db.execute("DROP TABLE parts")
        db.execute(PARTS.view_of_older([]) or "")
        assert db.execute(f"SELECT {PARTS.names} FROM parts").fetchall() == []
    assert PARTS.view_of_older([column.name for column in PARTS.columns]) is None
