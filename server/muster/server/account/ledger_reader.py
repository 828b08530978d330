"""The queries of the ledger."""

import json
import math
import sqlite3
from collections.abc import Iterator
from typing import Any, NamedTuple

from muster.common.errors import LedgerError
from muster.common.events import AppMeasured, Evaluated
from muster.common.exchange import Reason
from muster.server.account.rows import ESTIMATES, ROUNDS, EstimateRow, RoundRow
from muster.server.account.run_rows import (
    MEMORY,
    SHARED_WORK,
    MemoryRow,
    SharedWorkRow,
    StoredVector,
    all_metrics,
)
from muster.server.fleet.failures import TrainingEnd

_NOT_ITS_BODY = ", ".join(
    f"'{reason}'"
    for reason in (
        Reason.CHECKSUM, Reason.OTHER_BODY, Reason.NOT_CALLED, Reason.WRONG_ROUND,
        Reason.UNKNOWN_CLIENT,
    )
)  # fmt: skip
_ENDS_NOTHING = (
    "c.outcome = 'duplicate' "
    # The device still owes the right body.
    f"OR c.outcome = 'refused' AND c.reason IN ({_NOT_ITS_BODY}) "
    # It came when the run was ending, or after another row of its assignment.
    f"OR c.outcome = 'late' AND c.reason = '{Reason.ROUND_CLOSED}'"
)
"""Whether a row of `contributions`, named c, leaves its assignment as open as it was."""


class ParticipationRow(NamedTuple):
    """A device in a round: whether its update was folded, and its covariates X.

    Attributes:
        x: JSON; None if they are not known.
        x_age_s: scenario seconds since the device reported them.
    """

    round: int
    client: str
    took_part: bool
    x: str | None
    x_age_s: float | None


class OpenAssignmentRow(NamedTuple):
    """A call that a device has accepted and whose update has no outcome yet.

    Attributes:
        round: the round of the call.
        begun_s: scenario seconds at which that round opened.
        bytes_down: bytes of the model inside the message that called it.
    """

    client: str
    round: int
    base_version: int
    begun_s: float | None
    bytes_down: int


class ReportRow(NamedTuple):
    """The newest report of a device about itself.

    Attributes:
        state: JSON of its state; None if it did not report one.
        x: JSON of its covariates X; None if it did not report any.
        age_s: scenario seconds from the report to `at`.
        at: UNIX seconds of the row in `answers` that holds the report.
    """

    client: str
    state: str | None
    x: str | None
    age_s: float
    at: float


class LedgerReader:
    """Reads a ledger over the connection of its one writer."""

    _db: sqlite3.Connection

    def _one(self, query: str, *values: Any) -> Any:
        row = self._db.execute(query, values).fetchone()
        return row[0] if row else None

    def newest_round(self) -> int:
        """The number of the newest committed round; 0 before the first."""
        return int(self._one("SELECT coalesce(max(round), 0) FROM rounds"))

    def newest_version(self) -> int | None:
        """The newest version; None before the initial model has been entered."""
        version = self._one("SELECT max(version) FROM versions")
        return None if version is None else int(version)

    def model(self, version: int) -> StoredVector:
        """The model of a version, as stored.

        Raises:
            LedgerError: there is no such version.
        """
        return self._vector("SELECT sha256, bytes, body FROM versions WHERE version = ?", version)

    def state(self, version: int) -> StoredVector | None:
        """The aggregator's state at a version, as stored; None if the aggregator has no state."""
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

    def evaluations(self) -> dict[int, dict[str, float]]:
        """The metrics of every evaluated version, in their order; a loss that is not a number is
        NaN."""
        rows = self._db.execute(
            "SELECT version, loss, accuracy, metrics FROM evaluations ORDER BY version"
        )
        return {
            version: all_metrics(math.nan if loss is None else loss, accuracy, json.loads(metrics))
            for version, loss, accuracy, metrics in rows
        }

    def versions_on_devices(self) -> set[int]:
        """The versions of which groups and devices were measured."""
        return {v for (v,) in self._db.execute("SELECT DISTINCT version FROM group_evaluations")}

    def participation(self) -> Iterator[ParticipationRow]:
        """The devices that each round called or could not call, in the order of the rounds."""
        rows = self._db.execute(
            "SELECT a.round, a.client, c.client IS NOT NULL, a.x, a.x_age_s "
            "FROM answers a LEFT JOIN contributions c "
            "ON c.round = a.round AND c.client = a.client AND c.outcome = 'folded' "
            "ORDER BY a.round"
        )
        for round, client, took_part, x, x_age_s in rows:
            yield ParticipationRow(round, client, bool(took_part), x, x_age_s)

    def memory(self) -> list[MemoryRow]:
        """The places of the last updates of all clients."""
        rows = self._db.execute(f"SELECT {MEMORY.names} FROM memory ORDER BY client")
        return [MemoryRow(*row) for row in rows]

    def counted_rounds(self) -> dict[str, int]:
        """By client, the round of the call for its newest update that counted."""
        return dict(
            self._db.execute(
                "SELECT client, max(call_round) FROM contributions WHERE outcome = 'folded' "
                "GROUP BY client"
            ).fetchall()
        )

    def training_ends(self) -> Iterator[TrainingEnd]:
        """How training ended, for every call of which that is known."""
        rows = self._db.execute(
            "SELECT client, call_round, reason IS ? FROM contributions", [Reason.TRAINING_FAILED]
        )
        for client, round, failed in rows:
            yield TrainingEnd(client, round, bool(failed))

    def covariates(self) -> list[tuple[str, str]]:
        """(client, JSON of its covariates Z) of every client whose covariates Z are known."""
        return self._db.execute("SELECT client, z FROM clients WHERE z IS NOT NULL").fetchall()

    def last_reports(self) -> Iterator[ReportRow]:
        """The newest report of every device about its state and covariates X."""
        # SQLite takes the columns beside max() from the row that has the maximum.
        rows = self._db.execute(
            "SELECT client, state, x, x_age_s, at, max(round) FROM answers "
            "WHERE x_age_s IS NOT NULL GROUP BY client"
        )
        for *row, _ in rows:
            yield ReportRow(*row)

    def rounds_after(self, round: int) -> list[RoundRow]:
        """The rows of the rounds after `round`."""
        rows = self._db.execute(
            f"SELECT {ROUNDS.names} FROM rounds WHERE round > ? ORDER BY round", (round,)
        )
        return [RoundRow(*row) for row in rows]

    def staleness_after(self, round: int) -> dict[int, dict[int, int]]:
        """For each round after `round`, the number of updates that count, by their staleness.
        Rounds without such updates are absent."""
        rows = self._db.execute(
            "SELECT round, staleness, COUNT(*) FROM contributions "
            "WHERE round > ? AND outcome = 'folded' GROUP BY round, staleness",
            (round,),
        )
        found: dict[int, dict[int, int]] = {}
        for number, staleness, updates in rows:
            found.setdefault(number, {})[staleness] = updates
        return found

    def app_measured_from(self, round: int) -> list[EstimateRow]:
        """The metrics of the server side of an app, from a round on."""
        query = f"SELECT {ESTIMATES.names} FROM estimates WHERE round >= ? AND name = ?"
        return [EstimateRow(*row) for row in self._db.execute(query, (round, AppMeasured.name))]

    def next_s(self) -> float:
        """In lockstep, scenario seconds at which the next round opens; 0 before the first."""
        next_s = self._one("SELECT next_s FROM rounds ORDER BY round DESC LIMIT 1")
        return 0.0 if next_s is None else float(next_s)

    def newest_scenario_s(self) -> float:
        """The scenario second at which the newest round opened; 0 before the first."""
        return float(self._one("SELECT max(scenario_s) FROM rounds") or 0.0)

    def open_assignments(self) -> list[OpenAssignmentRow]:
        """The calls that devices have accepted and whose updates have no outcome yet."""
        # A join and not a subquery: SQLite makes an index for it.
        rows = self._db.execute(
            "SELECT a.client, a.round, r.base_version, r.scenario_s, a.bytes_down "
            "FROM answers a JOIN rounds r USING (round) LEFT JOIN contributions c "
            f"ON c.client = a.client AND c.call_round = a.round AND NOT ({_ENDS_NOTHING}) "
            "WHERE a.decision = 'accept' AND c.client IS NULL ORDER BY a.round, a.client"
        )
        return [OpenAssignmentRow(*row) for row in rows]

    def open_bases(self) -> set[int]:
        """The versions on which open assignments are based."""
        return {row.base_version for row in self.open_assignments()}

    def busy_until_s(self) -> list[tuple[str, float]]:
        """(client, scenario seconds at which its newest work ends), in lockstep, of devices whose
        newest work is not in `shared_work`."""
        return self._db.execute(
            "SELECT a.client, max(r.scenario_s + a.modelled_s) FROM answers a "
            "JOIN rounds r USING (round) LEFT JOIN shared_work w ON w.client = a.client "
            "WHERE a.decision IN ('accept', 'abort') AND (w.client IS NULL OR w.round < a.round) "
            "GROUP BY a.client"
        ).fetchall()

    def shared_work(self) -> list[SharedWorkRow]:
        """The newest work over shared links of every device that has had some."""
        rows = self._db.execute(f"SELECT {SHARED_WORK.names} FROM shared_work ORDER BY client")
        return [SharedWorkRow(*row) for row in rows]

    def declined(self) -> list[tuple[str, float, int]]:
        """(client, scenario seconds of the newest call that it declined, further steps of its life
        for which it said that it will be offline), in lockstep."""
        # SQLite takes the columns beside max() from the row that has the maximum.
        rows = self._db.execute(
            "SELECT a.client, r.scenario_s, a.away_steps, max(a.round) FROM answers a "
            "JOIN rounds r USING (round) WHERE a.decision = 'decline' GROUP BY a.client"
        )
        return [(client, declined_s, away_steps) for client, declined_s, away_steps, _ in rows]

    def traffic(self) -> tuple[int, int]:
        """Bytes of all bodies: those received from devices, and those sent to them."""
        totals = [
            f"(SELECT coalesce(sum({column}), 0) FROM rounds) + (SELECT {column} FROM run)"
            for column in ("bytes_up", "bytes_down")
        ]
        up, down = self._db.execute(f"SELECT {', '.join(totals)}").fetchone()
        return int(up), int(down)

    def evaluations_after(self, version: int) -> list[tuple[float, Evaluated]]:
        """The evaluations of later versions, each after the UNIX time at which it was made."""
        rows = self._db.execute(
            "SELECT at, version, round, loss, accuracy, seconds FROM evaluations "
            "WHERE version > ? ORDER BY version",
            (version,),
        )
        return [(at, Evaluated(*row)) for at, *row in rows]
