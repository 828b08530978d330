"""docs/results.md describes the ledger: each of its tables, with all of its columns."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

from muster.server.account.ledger import Ledger
from muster.server.account.tables import LEDGER_TABLES

PAGE = Path(__file__).parents[2] / "docs/results.md"
PART = re.compile(r"<!-- generated: (\w+) -->\n(.*?)<!-- end -->", re.DOTALL)


def chapter() -> str:
    return PAGE.read_text().split("\n## ledger.sqlite\n")[1].split("\n## ")[0]


def test_every_column_is_documented_once_and_every_documented_column_is_there(
    tmp_path: Path,
) -> None:
    Ledger(tmp_path / "ledger.sqlite").close()
    documented = {
        table: sorted(
            name
            for line in part.splitlines()[3:]
            for name in re.findall(r"`(\w+)`", line.split(" | ")[0])
        )
        for table, part in PART.findall(chapter())
    }
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as db:
        tables = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        there = {
            table: sorted(row[1] for row in db.execute(f"PRAGMA table_info({table})"))
            for (table,) in tables
        }
    assert documented == there


def test_every_table_stands_below_a_heading_with_its_name() -> None:
    below = [
        (section.partition(":")[0].split(", "), [table for table, _ in PART.findall(section)])
        for section in chapter().split("\n### ")[1:]
        if PART.search(section)
    ]
    assert all(named == described for named, described in below), below
    assert sorted(t for _, named in below for t in named) == sorted(t.name for t in LEDGER_TABLES)
