"""The ledger: one SQLite file, one writer, one transaction per round.

WAL with synchronous FULL: what `commit` returned from survives a power cut. (WAL with NORMAL does
not.) One connection writes; with two, SQLite before 3.51.3 can corrupt the log on reset.
"""

import json
import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from muster.common.errors import LedgerError

SCHEMA_VERSION = 6


class MemberRow(NamedTuple):
    """A row of `clients` before the device enrolls."""

    client: str
    group: str
    position: int
    examples: int
    enrolled: bool
    z: str | None


class RoundRow(NamedTuple):
    """A row of `rounds`; columns as in ledger.sql."""

    round: int
    base_version: int
    version: int
    outcome: str
    called: int
    accepted: int
    folded: int
    normaliser: float | None
    weight_sum: float | None
    weight_max: float | None
    effective_size: float | None
    bytes_up: int
    bytes_down: int
    opened_at: float
    closed_at: float
    seconds: float


class AnswerRow(NamedTuple):
    """A row of `answers`."""

    round: int
    client: str
    decision: str
    reason: str | None
    state: str | None
    x: str | None
    x_age_s: float | None
    modelled_s: float | None
    bytes_down: int
    at: float


class ContributionRow(NamedTuple):
    """A row of `contributions`."""

    round: int
    client: str
    attempt: int
    base_version: int
    staleness: int
    weight: float | None
    examples: int
    mask_ratio: float
    bytes_up: int
    bytes_down: int
    bytes_saved: int
    train_s: float | None
    transfer_s: float | None
    loss: float | None
    outcome: str
    reason: str | None
    at: float


class TransferRow(NamedTuple):
    """A row of `transfers`."""

    round: int
    client: str
    attempt: int
    direction: str
    bytes: int
    began_at: float
    wait_s: float
    seconds: float
    rate_bps: float | None
    ending: str


class EstimateRow(NamedTuple):
    """A row of `estimates`."""

    round: int
    name: str
    value: str


class ParticipationRow(NamedTuple):
    """A device in a round: whether its update was folded, and JSON of its covariates X."""

    round: int
    client: str
    took_part: bool
    x: str | None
    x_age_s: float | None


class ToldRow(NamedTuple):
    """The last that is known of a device: JSON of its state and covariates X.

    Attributes:
        at: UNIX seconds of the round's row.
        age_s: scenario seconds from what was told to `at`.
    """

    client: str
    state: str | None
    x: str | None
    age_s: float
    at: float


class StoredVector(NamedTuple):
    """A vector in the ledger: its bytes when small, else only the name of its file's content."""

    sha256: str
    size: int
    body: bytes | None


class GroupEvaluationRow(NamedTuple):
    """A row of `group_evaluations`."""

    version: int
    round: int
    group: str
    examples: int
    loss: float
    accuracy: float | None


class DeviceEvaluationRow(NamedTuple):
    """A row of `device_evaluations`."""

    version: int
    client: str
    examples: int
    loss: float
    accuracy: float | None


class EvaluationRow(NamedTuple):
    """A row of `evaluations`, with what belongs to it in the other two tables."""

    version: int
    round: int
    loss: float
    accuracy: float | None
    metrics: dict[str, float]
    seconds: float
    at: float
    groups: Sequence[GroupEvaluationRow] = ()
    devices: Sequence[DeviceEvaluationRow] = ()


def _insert(table: str, names: Sequence[str]) -> str:
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


_INSERT_ROUND = _insert("rounds", RoundRow._fields)
_INSERT_ANSWER = _insert("answers", AnswerRow._fields)
_INSERT_CONTRIBUTION = _insert("contributions", ContributionRow._fields)
_INSERT_TRANSFER = _insert("transfers", TransferRow._fields)
_INSERT_ESTIMATE = _insert("estimates", EstimateRow._fields)


_Statement = tuple[str, Sequence[Sequence[Any]]]


@dataclass(slots=True)
class Notes:
    """What waits for the next transaction.

    Attributes:
        bytes_up, bytes_down: of the bodies that came from devices and went to them, in chunks and
            inside other messages.
        sessions: (client, JSON of its fingerprint, time, JSON of its Z, capacity) of devices that
            enrolled.
    """

    contributions: list[ContributionRow] = field(default_factory=list)
    transfers: list[TransferRow] = field(default_factory=list)
    sessions: list[tuple[str, str, float, str, float]] = field(default_factory=list)
    estimates: list[EstimateRow] = field(default_factory=list)
    bytes_up: int = 0
    bytes_down: int = 0

    def statements(self) -> list[_Statement]:
        return [
            (_INSERT_CONTRIBUTION, self.contributions),
            (_INSERT_TRANSFER, self.transfers),
            (_INSERT_ESTIMATE, self.estimates),
            (
                (
                    "UPDATE clients SET sessions = sessions + 1, fingerprint = ?2, "
                    "enrolled_at = coalesce(enrolled_at, ?3), z = ?4, capacity = ?5 "
                    "WHERE client = ?1"
                ),
                self.sessions,
            ),
        ]


def _version(version: int, round: int, model: StoredVector) -> _Statement:
    return (
        "INSERT INTO versions (version, round, sha256, bytes, body) VALUES (?, ?, ?, ?, ?)",
        [(version, round, model.sha256, model.size, model.body)],
    )


def _state(version: int, state: StoredVector) -> _Statement:
    return (
        "INSERT INTO aggregator_state (version, sha256, bytes, body) VALUES (?, ?, ?, ?)",
        [(version, state.sha256, state.size, state.body)],
    )


def _forgetting(versions: Sequence[int]) -> list[_Statement]:
    old = [(version,) for version in versions]
    return [
        ("UPDATE versions SET kept = 0, body = NULL WHERE version = ?", old),
        ("DELETE FROM aggregator_state WHERE version = ?", old),
    ]


Connect = Callable[..., sqlite3.Connection]
"""As `sqlite3.connect`."""


class Ledger:
    """The account of a run, for its one writer. Not for several threads at once."""

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

    def _one(self, query: str, *values: Any) -> Any:
        row = self._db.execute(query, values).fetchone()
        return row[0] if row else None

    def _transaction(self, statements: Iterable["_Statement"]) -> None:
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
                *_forgetting(forget),
            ]
        )

    def close(self) -> None:
        """Fold the log into the file and close."""
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._db.close()

    # --- reading ---------------------------------------------------------------------------------

    def newest_round(self) -> int:
        """The newest committed round; 0 before the first."""
        return int(self._one("SELECT coalesce(max(round), 0) FROM rounds"))

    def newest_version(self) -> int | None:
        """The newest version; None before the initial model was entered."""
        version = self._one("SELECT max(version) FROM versions")
        return None if version is None else int(version)

    def model(self, version: int) -> StoredVector:
        """The row of a version."""
        return self._vector("SELECT sha256, bytes, body FROM versions WHERE version = ?", version)

    def state(self, version: int) -> StoredVector | None:
        """The row of the aggregator's state at a version; None for a rule without memory."""
        query = "SELECT sha256, bytes, body FROM aggregator_state WHERE version = ?"
        return self._vector(query, version) if self._one(query, version) else None

    def _vector(self, query: str, version: int) -> StoredVector:
        row = self._db.execute(query, (version,)).fetchone()
        if row is None:
            raise LedgerError(f"the ledger has no version {version}")
        return StoredVector(*row)

    def kept(self) -> list[tuple[int, int]]:
        """(version, round) of the versions that still have their bytes."""
        return self._db.execute(
            "SELECT version, round FROM versions WHERE kept ORDER BY version"
        ).fetchall()

    def evaluations(self) -> dict[int, tuple[float, float | None]]:
        """(loss, accuracy) of every version that was evaluated."""
        rows = self._db.execute("SELECT version, loss, accuracy FROM evaluations")
        return {version: (math.nan if loss is None else loss, acc) for version, loss, acc in rows}

    def participation(self) -> Iterator[ParticipationRow]:
        """Everybody who was called in a round, or could not be, in the order of the rounds."""
        rows = self._db.execute(
            "SELECT a.round, a.client, c.client IS NOT NULL, a.x, a.x_age_s "
            "FROM answers a LEFT JOIN contributions c "
            "ON c.round = a.round AND c.client = a.client AND c.outcome = 'folded' "
            "ORDER BY a.round"
        )
        for round, client, took_part, x, x_age_s in rows:
            yield ParticipationRow(round, client, bool(took_part), x, x_age_s)

    def covariates(self) -> list[tuple[str, str]]:
        """Clients whose covariates Z are known, and these as JSON."""
        return self._db.execute("SELECT client, z FROM clients WHERE z IS NOT NULL").fetchall()

    def last_told(self) -> Iterator[ToldRow]:
        """What every device told of itself, as its newest round has it."""
        rows = self._db.execute(  # SQLite takes the columns beside max() from the row that has it
            "SELECT client, state, x, x_age_s, at, max(round) FROM answers "
            "WHERE x_age_s IS NOT NULL GROUP BY client"
        )
        for *row, _ in rows:
            yield ToldRow(*row)

    def rounds_after(self, round: int) -> list[RoundRow]:
        """Rounds after one."""
        columns = ", ".join(RoundRow._fields)
        rows = self._db.execute(
            f"SELECT {columns} FROM rounds WHERE round > ? ORDER BY round", (round,)
        )
        return [RoundRow(*row) for row in rows]

    def traffic(self) -> tuple[int, int]:
        """Bytes of all bodies that came from devices, and that went to them."""
        totals = [
            f"(SELECT coalesce(sum({column}), 0) FROM rounds) + (SELECT {column} FROM run)"
            for column in ("bytes_up", "bytes_down")
        ]
        up, down = self._db.execute(f"SELECT {', '.join(totals)}").fetchone()
        return int(up), int(down)

    def evaluations_after(self, version: int) -> list[dict[str, Any]]:
        """Evaluations of versions after one, as the journal tells of them."""
        names = ("version", "round", "loss", "accuracy", "seconds", "at")
        rows = self._db.execute(
            f"SELECT {', '.join(names)} FROM evaluations WHERE version > ? ORDER BY version",
            (version,),
        )
        return [dict(zip(names, row, strict=True)) for row in rows]

    # --- writing ---------------------------------------------------------------------------------

    def commit(
        self,
        row: RoundRow,
        answers: Sequence[AnswerRow],
        notes: "Notes",
        model: StoredVector | None = None,
        state: StoredVector | None = None,
        forget: Sequence[int] = (),
    ) -> None:
        """Make a round durable, with its version when it has one: all of it or nothing.

        Args:
            notes: contributions of this round, and what else has happened since the last commit;
                its bytes are those of `row`.
            forget: versions whose bytes are no longer needed; their files are the caller's to
                remove afterwards.
        """
        statements: list[_Statement] = [
            (_INSERT_ROUND, [row]),
            (_INSERT_ANSWER, answers),
            *notes.statements(),
        ]
        if model is not None:
            statements.append(_version(row.version, row.round, model))
        if state is not None:
            statements.append(_state(row.version, state))
        self._transaction([*statements, *_forgetting(forget)])

    def note(self, notes: "Notes") -> None:
        """Make notes durable outside a round's commit."""
        traffic = "UPDATE run SET bytes_up = bytes_up + ?, bytes_down = bytes_down + ?"
        statement = (traffic, [(notes.bytes_up, notes.bytes_down)])
        self._transaction([*notes.statements(), statement])

    def enter_initial(self, model: StoredVector, state: StoredVector | None) -> None:
        """Enter version 0."""
        statements = [_version(0, 0, model)]
        if state is not None:
            statements.append(_state(0, state))
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
