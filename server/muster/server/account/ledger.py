"""The ledger: one SQLite file, one writer, one transaction per round.

The file uses WAL with synchronous FULL, so that a round survives a power cut once `commit` has
returned. (With synchronous NORMAL it might not.) Only one connection writes: with two, SQLite
before 3.51.3 can corrupt the log when it is reset.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from muster.common.errors import LedgerError
from muster.common.full_disk import is_full, is_of_system
from muster.server.account.columns import Statement
from muster.server.account.ledger_reader import LedgerReader
from muster.server.account.page_sums import PageSums, require_page_sums
from muster.server.account.rows import ANSWERS, ROUNDS, AnswerRow, RoundRow
from muster.server.account.run_rows import (
    AGGREGATOR_STATE,
    CLIENTS,
    INPUTS,
    RUN,
    VERSIONS,
    EvaluationRow,
    InputRow,
    MemberRow,
    RunRow,
    StateRow,
    StoredVector,
    VersionRow,
)
from muster.server.account.tables import SCHEMA_VERSION, schema
from muster.server.account.transaction import PendingTransaction, evaluation_statements

LOG_BYTES = 16 << 20
"""Length of the log from which on it is copied into the file. Each copy costs two waits for the
disk, one of them for the checksums of the pages, and rewrites pages that change in every round.
SQLite's own default, 4 MiB, costs a round of ten clients 5 % more."""

_COUNT_CONTRIBUTIONS = (
    "UPDATE rounds SET contributions = (SELECT coalesce(max(rowid), 0) FROM contributions) "
    "WHERE round = ?"
)

Connect = Callable[..., sqlite3.Connection]
"""Opens a database, with the parameters of `sqlite3.connect`."""


@contextmanager
def _unless_full() -> Iterator[None]:
    """Do nothing more if the disk is full."""
    try:
        yield
    except sqlite3.Error as error:
        if not is_full(error):
            raise


class Ledger(LedgerReader):
    """The ledger of a run, for its one writer. Only one thread may use it at a time."""

    def __init__(self, path: Path, connect: Connect = sqlite3.connect) -> None:
        """Open or create the ledger at `path`.

        Args:
            connect: opens the file. A simulation passes its own, whose disk can become full.

        Raises:
            LedgerError: the file is damaged or has another schema.
        """
        self._log, self._sums = path.with_name(f"{path.name}-wal"), PageSums(path)
        require_page_sums(path)
        self._db = connect(path, isolation_level=None, check_same_thread=False)
        try:
            self._open(path)
        except sqlite3.DatabaseError as error:
            self._db.close()
            if is_of_system(error):
                raise LedgerError(
                    f"{path} cannot be opened or written ({error}). See whether its disk has room "
                    f"and inodes left (df, df -i) and the file may be written, and resume the run"
                ) from None
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
        # `_checkpoint` does it instead. The log is cut when it begins anew, so that its length says
        # how much there is to do.
        self._db.execute("PRAGMA wal_autocheckpoint = 0")
        self._db.execute("PRAGMA journal_size_limit = 0")
        # Some builds overwrite deleted data with zeros. Every commit would then write the pages of
        # a whole model once more.
        self._db.execute("PRAGMA secure_delete = OFF")
        version = self._one("PRAGMA user_version")
        if version == 0 and not self._one("SELECT count(*) FROM sqlite_master"):
            self._db.executescript(f"BEGIN;\n{schema()}\nCOMMIT;")
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
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # on a full disk SQLite has ended it already
                self._db.execute("ROLLBACK")
            raise
        with suppress(FileNotFoundError):  # another program may have removed the log
            if self._log.stat().st_size > LOG_BYTES:
                self._checkpoint()

    def _checkpoint(self) -> None:
        """Copy the log into the file, as far as readers and the disk allow, and record the sums of
        its pages. What could not be copied stays in the log."""
        changed = self._sums.logged()
        with _unless_full():
            _, frames, copied = self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if frames == copied:
                self._sums.record(changed)

    def begin(
        self,
        run: str,
        members: Iterable[MemberRow],
        at: float,
        population: int,
        moments: Mapping[str, float],
        inputs: Iterable[InputRow] = (),
    ) -> int:
        """Enter a new incarnation of the server and return its number, from 1.

        The arguments about the population and the inputs are stored by the first incarnation only.

        Args:
            run: identity of the run.
            members: the devices that the server knows before they enroll.
            at: UNIX seconds when the run started.
            population: number of devices.
            moments: population means of the covariates Z.
            inputs: what the run begins with.

        Raises:
            LedgerError: the ledger belongs to another run.
        """
        known = self._one("SELECT id FROM run")
        if known is None:
            row = RunRow(run, 1, None, None, at, None, None, population, json.dumps(moments))
            self._transaction(
                [
                    RUN.insert([row]),
                    CLIENTS.insert(list(members)),
                    INPUTS.insert(list(inputs)),
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
        """Return the UNIX seconds of scenario time 0 on the wall or scaled clock.

        The first call stores `at`; later calls return the stored value.
        """
        self._db.execute("UPDATE run SET began_at = coalesce(began_at, ?)", (at,))
        return float(self._one("SELECT began_at FROM run"))

    def has_begun(self) -> bool:
        """Whether scenario time has begun."""
        return self._one("SELECT began_at FROM run") is not None

    def end(self, status: str, detail: str, at: float, forget: Sequence[int] = ()) -> None:
        """Record how the run ended, and forget the bytes of the versions in `forget`."""
        values = [(status, detail, at)]
        self._transaction(
            [
                ("UPDATE run SET status = ?, detail = ?, ended_at = ?", values),
                *_forget_statements(forget),
            ]
        )

    def close(self) -> None:
        """Fold the log into the file and close."""
        self._checkpoint()
        changed = self._sums.logged()
        with _unless_full():
            busy, *_ = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if not busy:  # a reader may have held up the first checkpoint
                self._sums.record(changed)
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
        """Make a round durable in one transaction, with the version that it made.

        Args:
            pending: contributions of this round, and all other rows since the last commit. `row`
                already has its `bytes_up` and `bytes_down`.
            model: the version's model; None if the round is empty.
            state: the aggregator's state at the version; None if there is none.
            forget: versions whose bytes are no longer needed. The caller removes their files
                afterwards.
        """
        statements: list[Statement] = [
            ROUNDS.insert([row]),
            ANSWERS.insert(answers),
            *pending.statements(),
            (_COUNT_CONTRIBUTIONS, [(row.round,)]),
        ]
        if model is not None:
            statements.append(_version_statement(row.version, row.round, model))
        if state is not None:
            statements.append(_state_statement(row.version, state))
        self._transaction([*statements, *_forget_statements(forget)])

    def note(self, pending: PendingTransaction) -> None:
        """Make rows durable outside the commit of a round."""
        traffic = "UPDATE run SET bytes_up = bytes_up + ?, bytes_down = bytes_down + ?"
        statement = (traffic, [(pending.bytes_up, pending.bytes_down)])
        self._transaction([*pending.statements(), statement])

    def enter_initial(self, model: StoredVector, state: StoredVector | None) -> None:
        """Enter the initial model as version 0, with the aggregator's state."""
        statements = [_version_statement(0, 0, model)]
        if state is not None:
            statements.append(_state_statement(0, state))
        self._transaction(statements)

    def evaluated(self, row: EvaluationRow) -> None:
        """Enter an evaluation with its groups and devices.

        Its loss and accuracy are also entered in the row of the round that made the version.
        """
        self._transaction(evaluation_statements(row))


def _version_statement(version: int, round: int, model: StoredVector) -> Statement:
    return VERSIONS.insert([VersionRow(version, round, *model)])


def _state_statement(version: int, state: StoredVector) -> Statement:
    return AGGREGATOR_STATE.insert([StateRow(version, *state)])


def _forget_statements(versions: Sequence[int]) -> list[Statement]:
    old = [(version,) for version in versions]
    return [
        ("UPDATE versions SET kept = 0, body = NULL WHERE version = ?", old),
        ("DELETE FROM aggregator_state WHERE version = ?", old),
    ]
