"""The rows that one transaction of the ledger enters, and the statements that do it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from muster.server.account.columns import Statement
from muster.server.account.rows import (
    CONTRIBUTIONS,
    ESTIMATES,
    TRANSFERS,
    VALUATIONS,
    ContributionRow,
    EstimateRow,
    TransferRow,
    ValuationRow,
)
from muster.server.account.run_rows import (
    DEVICE_EVALUATIONS,
    EVALUATIONS,
    GROUP_EVALUATIONS,
    MEMORY,
    SHARED_WORK,
    EvaluationRow,
    MemoryRow,
    SharedWorkRow,
)

_UNLESS_THERE = "INSERT OR IGNORE"


def evaluation_statements(row: EvaluationRow) -> list[Statement]:
    """The statements that enter an evaluation, also in the row of the round that made the
    version."""
    of_round = "UPDATE rounds SET loss = ?, accuracy = ? WHERE round = ?"
    return [
        EVALUATIONS.insert([row[: len(EVALUATIONS.columns)]], _UNLESS_THERE),
        (of_round, [(row.loss, row.accuracy, row.round)]),
        *part_statements(row),
    ]


def part_statements(row: EvaluationRow) -> list[Statement]:
    """The statements that enter the groups and devices of an evaluation."""
    return [
        GROUP_EVALUATIONS.insert(row.groups, _UNLESS_THERE),
        DEVICE_EVALUATIONS.insert(row.devices, _UNLESS_THERE),
    ]


class EndedWork(NamedTuple):
    """The end of an assignment's work over a shared link, in scenario seconds."""

    end_s: float
    round: int
    client: str


@dataclass(slots=True)
class PendingTransaction:
    """Rows that wait for the next transaction.

    Attributes:
        bytes_up, bytes_down: bytes of the bodies that were received from devices and sent to them,
            in chunks and inside other messages.
        sessions: (client, JSON of its fingerprint, time, JSON of its Z or None, capacity) of
            devices that enrolled.
        resent: (bytes, round, client) of models that were sent again for answers that are entered.
        memory: the places of the last updates of the clients that counted in the round.
        work: how far work over shared links is, in the modes in which it may outlive its round.
        ended: the work over shared links that has ended.
        measured: the statements that enter what devices have evaluated.
    """

    contributions: list[ContributionRow] = field(default_factory=list)
    transfers: list[TransferRow] = field(default_factory=list)
    sessions: list[tuple[str, str, float, str | None, float]] = field(default_factory=list)
    estimates: list[EstimateRow] = field(default_factory=list)
    resent: list[tuple[int, int, str]] = field(default_factory=list)
    memory: Sequence[MemoryRow] = ()
    work: Sequence[SharedWorkRow] = ()
    ended: Sequence[EndedWork] = ()
    measured: Sequence[Statement] = ()
    bytes_up: int = 0
    bytes_down: int = 0
    valuations: list[ValuationRow] = field(default_factory=list)

    def statements(self) -> list[Statement]:
        return [
            CONTRIBUTIONS.insert(self.contributions),
            VALUATIONS.insert(self.valuations),
            TRANSFERS.insert(self.transfers),
            ESTIMATES.insert(self.estimates),
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
            *self.measured,
            MEMORY.insert(self.memory, "INSERT OR REPLACE"),
            SHARED_WORK.insert(self.work, "INSERT OR REPLACE"),
            (
                (
                    "UPDATE answers SET modelled_s = work.ended_s - r.scenario_s FROM rounds AS r "
                    "JOIN (SELECT ? AS ended_s, ? AS round, ? AS client) AS work USING (round) "
                    "WHERE answers.round = work.round AND answers.client = work.client"
                ),
                self.ended,
            ),
        ]
