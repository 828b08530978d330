"""The rows of the ledger, and the statements that write them. ledger.sql explains the columns."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from muster.common.events import AppMeasured, RoundCommitted


class MemberRow(NamedTuple):
    """A row of `clients` before the device enrolls."""

    client: str
    group: str
    position: int
    examples: int
    enrolled: bool
    z: str | None


class InputRow(NamedTuple):
    """A row of `inputs`."""

    kind: str
    name: str
    sha256: str


class RoundRow(NamedTuple):
    """A row of `rounds`."""

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
    scenario_s: float | None
    next_s: float | None
    bytes_up: int
    bytes_down: int
    opened_at: float
    closed_at: float
    seconds: float
    epsilon: float | None = None

    def committed(self, staleness: Mapping[int, int]) -> RoundCommitted:
        """The event of the journal for this round.

        Args:
            staleness: the number of updates that count, by their staleness.
        """
        return RoundCommitted(
            self.round,
            self.version,
            self.outcome,
            self.called,
            self.accepted,
            self.folded,
            self.bytes_up,
            self.bytes_down,
            self.seconds,
            self.epsilon,
            {str(versions): updates for versions, updates in sorted(staleness.items())},
        )


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
    away_steps: int = 0
    entered: int | None = None


class ValuationRow(NamedTuple):
    """A row of `valuations`."""

    round: int
    client: str
    received_accuracy: float
    own_accuracy: float | None
    a: float | None
    b: float | None
    c: float | None
    threshold: float | None
    gains: bool | None
    forced: bool
    fitted_utility: float | None
    r_squared: float | None
    received_loss: float | None
    own_loss: float | None


class ContributionRow(NamedTuple):
    """A row of `contributions`."""

    round: int
    client: str
    call_round: int
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
    steps: int = 0
    initial_loss: float | None = None


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

    def app_measured(self) -> AppMeasured:
        """The event of the journal for metrics of an app."""
        return AppMeasured(self.round, json.loads(self.value))


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


class StoredVector(NamedTuple):
    """A stored model or aggregator state.

    Attributes:
        sha256: hexadecimal SHA-256 of the safetensors file.
        size: length of the file in bytes.
        body: content of the file if it is small; None if it is a file in the folder of models.
    """

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


class MemoryRow(NamedTuple):
    """A row of `memory`."""

    client: str
    round: int
    slot: int
    checksum: str


class SharedWorkRow(NamedTuple):
    """A row of `shared_work`."""

    client: str
    round: int
    train_s: float
    stage: int
    at_s: float
    left_bits: float


class EndedWork(NamedTuple):
    """The end of an assignment's work over a shared link, in scenario seconds."""

    end_s: float
    round: int
    client: str


class DeviceEvaluationRow(NamedTuple):
    """A row of `device_evaluations`."""

    version: int
    client: str
    examples: int
    loss: float
    accuracy: float | None


class EvaluationRow(NamedTuple):
    """A row of `evaluations`, with its rows of the tables for groups and devices."""

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


INSERT_ROUND = _insert("rounds", RoundRow._fields)
INSERT_ANSWER = _insert("answers", AnswerRow._fields)
COUNT_CONTRIBUTIONS = (
    "UPDATE rounds SET contributions = (SELECT coalesce(max(rowid), 0) FROM contributions) "
    "WHERE round = ?"
)
_INSERT_VALUATION = _insert("valuations", ValuationRow._fields)
_INSERT_CONTRIBUTION = _insert("contributions", ContributionRow._fields)
_INSERT_TRANSFER = _insert("transfers", TransferRow._fields)
_INSERT_ESTIMATE = _insert("estimates", EstimateRow._fields)
_REPLACE_MEMORY = _insert("memory", MemoryRow._fields).replace("INSERT", "INSERT OR REPLACE", 1)
_REPLACE_WORK = _insert("shared_work", SharedWorkRow._fields).replace(
    "INSERT", "INSERT OR REPLACE", 1
)


Statement = tuple[str, Sequence[Sequence[Any]]]


@dataclass(slots=True)
class PendingTransaction:
    """Rows that wait for the next transaction.

    Attributes:
        bytes_up, bytes_down: bytes of the bodies that were received from devices and sent to them,
            in chunks and inside other messages.
        sessions: (client, JSON of its fingerprint, time, JSON of its Z, capacity) of devices that
            enrolled.
        resent: (bytes, round, client) of models that were sent again for answers that are entered.
        memory: the places of the last updates of the clients that counted in the round.
        work: how far work over shared links is, in the modes in which it may outlive its round.
        ended: the work over shared links that has ended.
    """

    contributions: list[ContributionRow] = field(default_factory=list)
    transfers: list[TransferRow] = field(default_factory=list)
    sessions: list[tuple[str, str, float, str, float]] = field(default_factory=list)
    estimates: list[EstimateRow] = field(default_factory=list)
    resent: list[tuple[int, int, str]] = field(default_factory=list)
    memory: Sequence[MemoryRow] = ()
    work: Sequence[SharedWorkRow] = ()
    ended: Sequence[EndedWork] = ()
    bytes_up: int = 0
    bytes_down: int = 0
    valuations: list[ValuationRow] = field(default_factory=list)

    def statements(self) -> list[Statement]:
        return [
            (_INSERT_CONTRIBUTION, self.contributions),
            (_INSERT_VALUATION, self.valuations),
            (_INSERT_TRANSFER, self.transfers),
            (_INSERT_ESTIMATE, self.estimates),
            (
                (
                    "UPDATE clients SET sessions = sessions + 1, fingerprint = told.fingerprint, "
                    "enrolled_at = coalesce(enrolled_at, told.at), z = told.z, "
                    "capacity = told.capacity FROM (SELECT ? AS client, ? AS fingerprint, "
                    "? AS at, ? AS z, ? AS capacity) AS told WHERE clients.client = told.client"
                ),
                self.sessions,
            ),
            (
                "UPDATE answers SET bytes_down = bytes_down + ? WHERE round = ? AND client = ?",
                self.resent,
            ),
            (_REPLACE_MEMORY, self.memory),
            (_REPLACE_WORK, self.work),
            (
                (
                    "UPDATE answers SET modelled_s = work.ended_s - r.scenario_s FROM rounds AS r "
                    "JOIN (SELECT ? AS ended_s, ? AS round, ? AS client) AS work USING (round) "
                    "WHERE answers.round = work.round AND answers.client = work.client"
                ),
                self.ended,
            ),
        ]
