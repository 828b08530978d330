"""docs/results.md describes the ledger: tables and columns that are there and are written."""

import re
import sqlite3
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from muster.server.account.ledger import Ledger
from muster.server.account.rows import (
    AnswerRow,
    ContributionRow,
    DeviceEvaluationRow,
    EstimateRow,
    EvaluationRow,
    GroupEvaluationRow,
    InputRow,
    MemberRow,
    MemoryRow,
    PendingTransaction,
    RoundRow,
    SharedWorkRow,
    StoredVector,
    TransferRow,
    ValuationRow,
)

PAGE = Path(__file__).parents[2] / "docs/results.md"
UNWRITTEN = "Nothing writes this table yet"

Columns = dict[str, set[str]]


class TracedLedger(Ledger):
    """A new ledger.

    Attributes:
        statements: the statements that it executed, with their values.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.statements: list[str] = []
        super().__init__(path, self._traced)

    def _traced(self, path: Path, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = sqlite3.connect(path, **options)
        connection.set_trace_callback(self.statements.append)
        return connection


@pytest.fixture
def ledger(tmp_path: Path) -> TracedLedger:
    return TracedLedger(tmp_path / "ledger.sqlite")


def schema(ledger: TracedLedger) -> Columns:
    with closing(sqlite3.connect(ledger.path)) as db:
        tables = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        return {
            table: {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
            for (table,) in tables
        }


def sections() -> dict[tuple[str, ...], str]:
    """The page's sections on the ledger, by the tables in their headings."""
    chapter = PAGE.read_text().split("\n## ledger.sqlite\n")[1].split("\n## ")[0]
    found = {}
    for section in chapter.split("\n### ")[1:]:
        heading, _, text = section.partition("\n")
        found[tuple(heading.split(":")[0].split(", "))] = text
    return found


def documented(there: Columns) -> Columns:
    """Columns by table; one without a table in its name is of all in the heading that have it."""
    found: Columns = defaultdict(set)
    for tables, text in sections().items():
        of_columns = text.partition("| column | meaning |\n")[2].split("\n\n")[0]
        cells = [line.split(" | ")[0] for line in of_columns.splitlines()]
        for name in re.findall(r"`([^`]+)`", " ".join(cells)):
            table, _, column = name.rpartition(".")
            owners = [table] if table else [t for t in tables if column in there[t]]
            assert owners, f"no table of {tables} has the column {column}"
            for owner in owners:
                found[owner].add(column)
    return found


def written(ledger: TracedLedger) -> Columns:
    """Columns by table in the statements with which a ledger writes a run."""
    vector = StoredVector("ab", 3, b"abc")
    member = MemberRow("a", "g", 0, 5, True, None)
    ledger.begin("run", [member], 1.0, 1, {}, [InputRow("scenario", "scenario.toml", "ab")])
    ledger.begin("run", [member], at=2.0, population=1, moments={})
    ledger.began_at(2.0)
    ledger.enter_initial(vector, vector)
    notes = PendingTransaction(
        [ContributionRow(1, "a", 1, 1, 0, 0, 5, 5, 1, 4, 4, 0, 1, 2, 3, "folded", None, 9.0)],
        [TransferRow(1, "a", 1, "up", 4, 2.0, 0.5, 0.25, 128.0, "complete")],
        [("a", "{}", 2.0, "{}", 1.0)],
        [EstimateRow(1, "floor", "0.1")],
        memory=[MemoryRow("a", 1, 0, "00")],
        work=[SharedWorkRow("a", 1, 0.5, 5, 2.0, 0.0)],
        valuations=[
            ValuationRow(1, "a", 0.5, 0.2, 0.1, 0.2, 0.3, 0.4, True, False, 0.4, 0.9, 1.0, 1.0)
        ],
    )
    row = RoundRow(
        1, 0, 1, "aggregated", 1, 1, 1, 5.0, 5.0, 5.0, 1.0, 0.0, 60.0, 4, 4, 2.0, 9.0, 7.0
    )
    answer = AnswerRow(1, "a", "accept", None, None, None, None, 0.0, 0, 3.0)
    ledger.commit(row, [answer], notes, vector, vector, forget=[0])
    ledger.note(PendingTransaction())
    groups = [GroupEvaluationRow(1, 1, "g", 5, 0.1, None)]
    devices = [DeviceEvaluationRow(1, "a", 5, 0.1, None)]
    ledger.evaluated(EvaluationRow(1, 1, 0.1, None, {}, 0.5, 9.5, groups, devices))
    ledger.end("completed", "1 round", 10.0)
    there, found = schema(ledger), defaultdict[str, set[str]](set)
    for statement in ledger.statements:
        if into := re.match(
            r"INSERT (?:OR (?:IGNORE|REPLACE) )?INTO (\w+)(?: \(([^)]*)\))? VALUES", statement
        ):
            table, columns = into.groups()
            names = [name.strip('" ') for name in columns.split(",")] if columns else there[table]
            found[table].update(names)
        elif update := re.match(r"UPDATE (\w+) SET (.*?)(?: WHERE |$)", statement):
            found[update[1]].update(re.findall(r"(\w+) = ", update[2]))
    return found


def test_every_column_is_documented_and_every_documented_column_is_there(
    ledger: TracedLedger,
) -> None:
    there = schema(ledger)
    assert documented(there) == there


def test_what_is_documented_is_written_unless_the_page_says_that_it_is_not(
    ledger: TracedLedger,
) -> None:
    there, found = schema(ledger), written(ledger)
    unwritten = {tables[0] for tables, text in sections().items() if UNWRITTEN in text}
    assert found == {table: columns for table, columns in there.items() if table not in unwritten}
