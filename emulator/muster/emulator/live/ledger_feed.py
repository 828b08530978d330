"""Reads new rows of a run's ledger, again and again, in transactions that are short.

A reader that never ends would keep SQLite from shortening its log, so every look opens the ledger
anew. However much was committed since the last look, a look reads all new rounds, but the rows of
devices for the newest of them only.
"""

import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from muster.common.errors import LedgerError
from muster.emulator.live.fleet_state import NEWEST_ROUNDS, GroupEvaluation, LedgerRows, RoundFacts
from muster.emulator.live.round_digest import DeviceAnswer, DeviceUpdate
from muster.emulator.records.ledger_file import damaged, read_ledger

MOST_ROWS = 20_000
"""About how many rows of devices a look reads."""


class _Seen(NamedTuple):
    """What earlier looks have read: whether the clients, and the largest round, version of a group
    evaluation, and rowids of contributions and transfers."""

    clients: bool = False
    round: int = 0
    version: int = -1
    update: int = 0
    transfer: int = 0


class LedgerFeed:
    """Reads what was committed since the last look. A look that failed is repeated whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = _Seen()

    def new(self) -> LedgerRows:
        """The rows since the last call; none if there is no ledger yet.

        Raises:
            LedgerError: the ledger is damaged, or its schema cannot be read.
        """
        try:
            with read_ledger(self._path) as ledger:
                rows, self._seen = self._read(ledger)
                return rows
        except LedgerError:
            if self._path.is_file() and self._path.stat().st_size:
                raise
            return LedgerRows()
        except (ValueError, TypeError) as error:
            raise damaged(self._path, error) from error

    def _read(self, ledger: sqlite3.Connection) -> tuple[LedgerRows, _Seen]:
        seen, enrolled = self._seen, None
        if not seen.clients:
            found = ledger.execute("SELECT client, enrolled FROM clients").fetchall()
            enrolled = {client: bool(may_train) for client, may_train in found}
            seen = seen._replace(clients=bool(enrolled))
        # Evaluations are entered after the commit of their round.
        group_evaluations = ledger.execute(
            'SELECT round, "group", loss, accuracy, metrics, version FROM group_evaluations '
            "WHERE version > ? ORDER BY version",
            (seen.version,),
        ).fetchall()
        if group_evaluations:
            seen = seen._replace(version=group_evaluations[-1][-1])
        newest = ledger.execute("SELECT metrics FROM evaluations ORDER BY version DESC LIMIT 1")
        rows = LedgerRows(
            enrolled=enrolled,
            group_evaluations=[GroupEvaluation(*row[:5]) for row in group_evaluations],
            metrics=(newest.fetchone() or ("",))[0],
        )
        rounds = [
            RoundFacts(*row)
            for row in ledger.execute(
                f"SELECT {_columns(RoundFacts)} FROM rounds WHERE round > ? ORDER BY round",
                (seen.round,),
            )
        ]
        if not rounds:
            return rows, seen
        first = self._first_of(rounds)
        answers = ledger.execute(
            f"SELECT {_columns(DeviceAnswer)} FROM answers "
            "WHERE round >= ? AND decision <> 'silent'",
            (first,),
        )
        # Rows are entered in the order of the rounds, and only rowids have an index.
        update, transfer = (_newest_rowid(ledger, each) for each in ("contributions", "transfers"))
        rows = replace(
            rows,
            rounds=rounds,
            answers=[DeviceAnswer(*row) for row in answers],
            updates=_updates(ledger, first, max(seen.update, update - MOST_ROWS)),
            waits=_waits(ledger, first, max(seen.transfer, transfer - 2 * MOST_ROWS)),
        )
        return rows, seen._replace(round=rounds[-1].round, update=update, transfer=transfer)

    def _first_of(self, rounds: list[RoundFacts]) -> int:
        """The first of the newest rounds whose rows of devices are read."""
        rows = 0
        for facts in reversed(rounds[-NEWEST_ROUNDS:]):
            first = facts.round
            rows += facts.called
            if rows > MOST_ROWS:
                break
        return first


def _columns(row: type[RoundFacts] | type[DeviceAnswer] | type[DeviceUpdate]) -> str:
    return ", ".join(row._fields)


def _updates(ledger: sqlite3.Connection, first: int, after: int) -> list[DeviceUpdate]:
    rows = ledger.execute(
        f"SELECT {_columns(DeviceUpdate)} FROM contributions WHERE rowid > ? AND round >= ?",
        (after, first),
    )
    return [DeviceUpdate(*row) for row in rows]


def _waits(ledger: sqlite3.Connection, first: int, after: int) -> Mapping[int, dict[str, float]]:
    found: dict[int, dict[str, float]] = {}
    for round, client, wait_s in ledger.execute(
        "SELECT round, client, sum(wait_s) FROM transfers WHERE rowid > ? AND round >= ? "
        "GROUP BY round, client",
        (after, first),
    ):
        found.setdefault(round, {})[client] = wait_s
    return found


def _newest_rowid(ledger: sqlite3.Connection, table: str) -> int:
    return int(ledger.execute(f"SELECT coalesce(max(rowid), 0) FROM {table}").fetchone()[0])
