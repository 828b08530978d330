"""The ledger: one SQLite file, one writer, one transaction per round.

WAL with synchronous FULL: what `commit` returned from survives a power cut. (WAL with NORMAL does
not.) One connection writes; with two, SQLite before 3.51.3 can corrupt the log on reset.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path

from muster.common.errors import LedgerError
from muster.server.account.ledger_reader import LedgerReader
from muster.server.account.rows import (
    INSERT_ANSWER,
    INSERT_ROUND,
    AnswerRow,
    EvaluationRow,
    MemberRow,
    PendingTransaction,
    RoundRow,
    Statement,
    StoredVector,
    forget_statements,
    state_statement,
    version_statement,
)

SCHEMA_VERSION = 6

Connect = Callable[..., sqlite3.Connection]
"""As `sqlite3.connect`."""


class Ledger(LedgerReader):
    """The account of a run, for its one writer. It must not be used by several threads at once."""

    def __init__(self, path: Path, connect: Connect = sqlite3.connect) -> None:
        """Open or create the ledger at `path`.

        Args:
            connect: opens the file; a simulation hands in one whose disk may be full.

        Raises:
            LedgerError: it is damaged or of another schema.
        """
        self._db = connect(path, isolation_level=None, check_same_thread=False)
        try:
            self._open(path)
        except sqlite3.DatabaseError as error:
            self._db.close()
            raise LedgerError(
                f"{path} is not a ledger, or is damaged ({error}). Start the run afresh with "
                f"another --out; the file is left as it is"
            ) from None
        except LedgerError:
            self._db.close()
            raise

    def _open(self, path: Path) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA mmap_size = 0")
        # Some builds fill what is deleted with zeros: with every commit a model's worth of pages.
        self._db.execute("PRAGMA secure_delete = OFF")
        version = self._one("PRAGMA user_version")
        if version == 0 and not self._one("SELECT count(*) FROM sqlite_master"):
            ddl = resources.files(__package__).joinpath("ledger.sql").read_text()
            self._db.executescript(f"BEGIN; {ddl} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
        elif version != SCHEMA_VERSION:
            raise LedgerError(
                f"{path} has ledger schema {version}; this muster writes {SCHEMA_VERSION}. Resume "
                f"it with the version of muster that began it"
            )
        elif (check := self._one("PRAGMA quick_check")) != "ok":
            raise LedgerError(f"{path} is damaged: {check}. Start afresh with another --out")

    def _transaction(self, statements: Iterable[Statement]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for statement, rows in statements:
                if rows:
                    self._db.executemany(statement, rows)
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def begin(
        self,
        run: str,
        members: Iterable[MemberRow],
        at: float,
        population: int,
        moments: Mapping[str, float],
    ) -> int:
        """Enter an incarnation of the server and return its number, from 1. What is said of the
        population counts the first time only.

        Args:
            members: devices that are known before they enroll.
            population: how many there are.
            moments: population means of the covariates Z.

        Raises:
            LedgerError: the ledger belongs to another run.
        """
        known = self._one("SELECT id FROM run")
        if known is None:
            self._transaction(
                [
                    (
                        (
                            "INSERT INTO run (id, incarnation, started_at, population, moments) "
                            "VALUES (?, 1, ?, ?, ?)"
                        ),
                        [(run, at, population, json.dumps(moments))],
                    ),
                    (
                        (
                            'INSERT INTO clients (client, "group", position, examples, enrolled, '
                            "z) VALUES (?, ?, ?, ?, ?, ?)"
                        ),
                        list(members),
                    ),
                ]
            )
            return 1
        if known != run:
            raise LedgerError(f"the ledger is of run {known}, not of {run}")
        self._db.execute(
            "UPDATE run SET incarnation = incarnation + 1, status = NULL, detail = NULL, "
            "ended_at = NULL"
        )
        return int(self._one("SELECT incarnation FROM run"))

    def began_at(self, at: float) -> float:
        """UNIX seconds of scenario time 0 on the wall or scaled clock: `at`, if it is asked for the
        first time."""
        self._db.execute("UPDATE run SET began_at = coalesce(began_at, ?)", (at,))
        return float(self._one("SELECT began_at FROM run"))

    def has_begun(self) -> bool:
        """Whether scenario time runs already."""
        return self._one("SELECT began_at FROM run") is not None

    def end(self, status: str, detail: str, at: float, forget: Sequence[int] = ()) -> None:
        """Record how the run ended, and that the bytes of the versions in `forget` are gone."""
        values = [(status, detail, at)]
        self._transaction(
            [
                ("UPDATE run SET status = ?, detail = ?, ended_at = ?", values),
                *forget_statements(forget),
            ]
        )

    def close(self) -> None:
        """Fold the log into the file and close."""
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._db.close()

    # --- writing ---------------------------------------------------------------------------------

    def commit(
        self,
        row: RoundRow,
        answers: Sequence[AnswerRow],
        pending: PendingTransaction,
        model: StoredVector | None = None,
        state: StoredVector | None = None,
        forget: Sequence[int] = (),
    ) -> None:
        """Make a round durable, with its version when it has one: all of it or nothing.

        Args:
            pending: contributions of this round, and what else happened since the last commit;
                its bytes are those of `row`.
            forget: versions whose bytes are no longer needed; their files are the caller's to
                remove afterwards.
        """
        statements: list[Statement] = [
            (INSERT_ROUND, [row]),
            (INSERT_ANSWER, answers),
            *pending.statements(),
        ]
        if model is not None:
            statements.append(version_statement(row.version, row.round, model))
        if state is not None:
            statements.append(state_statement(row.version, state))
        self._transaction([*statements, *forget_statements(forget)])

    def note(self, pending: PendingTransaction) -> None:
        """Make rows durable outside the commit of a round."""
        traffic = "UPDATE run SET bytes_up = bytes_up + ?, bytes_down = bytes_down + ?"
        statement = (traffic, [(pending.bytes_up, pending.bytes_down)])
        self._transaction([*pending.statements(), statement])

    def enter_initial(self, model: StoredVector, state: StoredVector | None) -> None:
        """Enter version 0."""
        statements = [version_statement(0, 0, model)]
        if state is not None:
            statements.append(state_statement(0, state))
        self._transaction(statements)

    def evaluated(self, row: EvaluationRow) -> None:
        """Enter an evaluation, with groups and devices, and its loss and accuracy with the round
        that made the version."""
        self._transaction(
            [
                (
                    "INSERT OR IGNORE INTO evaluations VALUES (?, ?, ?, ?, ?, ?, ?)",
                    [
                        (
                            row.version,
                            row.round,
                            row.loss,
                            row.accuracy,
                            json.dumps(row.metrics),
                            row.seconds,
                            row.at,
                        )
                    ],
                ),
                (
                    "UPDATE rounds SET loss = ?, accuracy = ? WHERE round = ?",
                    [(row.loss, row.accuracy, row.round)],
                ),
                ("INSERT OR IGNORE INTO group_evaluations VALUES (?, ?, ?, ?, ?, ?)", row.groups),
                ("INSERT OR IGNORE INTO device_evaluations VALUES (?, ?, ?, ?, ?)", row.devices),
            ]
        )
