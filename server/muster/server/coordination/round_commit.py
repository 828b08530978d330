"""The end of a round: aggregate its updates, and commit the round with its version of the model."""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from muster.common.clock import Clock
from muster.common.errors import RunFailed
from muster.common.events import AppMeasured, LeftOut, Tell
from muster.common.exchange import Commit
from muster.common.tensors import Vector
from muster.server.account.ledger import Ledger
from muster.server.account.rows import AnswerRow, ContributionRow, RoundRow
from muster.server.account.transaction import PendingTransaction
from muster.server.aggregation.aggregation import Aggregation
from muster.server.aggregation.versions import ModelVersions
from muster.server.aggregators import State
from muster.server.coordination.closed_round import ClosedRound
from muster.server.coordination.shared_links import SharedLinks
from muster.server.evaluation.schedule import EvaluationSchedule
from muster.server.fleet.failures import Failures, TrainingEnd
from muster.server.rounds.modes import Mode, contract
from muster.server.rounds.phases import RoundEvent
from muster.server.rounds.round import Round
from muster.server.runtime.room_on_disk import RoomOnDisk
from muster.server.runtime.worker import WorkerThread
from muster.server.updates.receiver import UpdateReceiver

if TYPE_CHECKING:
    from muster.server.account.pending_rows import PendingRows


class RoundCommit:
    """Closes rounds and makes them durable.

    Attributes:
        evaluations: the schedule of the evaluations of versions; set before the first round.

    Args:
        round_s: scenario seconds of a step of device life.
        failures: gets how the training of devices ended.
    """

    evaluations: EvaluationSchedule

    def __init__(
        self,
        mode: Mode,
        round_s: float,
        aggregation: Aggregation,
        ledger: Ledger,
        versions: ModelVersions,
        receiver: UpdateReceiver,
        links: SharedLinks,
        worker: WorkerThread,
        room: RoomOnDisk,
        failures: Failures,
        clock: Clock,
        tell: Tell,
    ) -> None:
        self._room = room
        self._failures = failures
        self._mode = mode
        self._links = links
        self._round_s = round_s
        self._aggregation = aggregation
        self._ledger = ledger
        self._versions = versions
        self._receiver = receiver
        self._pending: PendingRows = receiver.pending
        self._worker = worker
        self._clock = clock
        self._tell = tell
        self._barren = 0

    async def close(self, round: Round, opened_at: float, began: float) -> ClosedRound:
        """Aggregate the updates of a round that no longer collects.

        Args:
            opened_at: UNIX seconds at which the round opened.
            began: monotonic seconds of the same moment.

        Raises:
            Diverged: the sum of the updates left its range.
            RunFailed: the aggregator gave a wrong number of weights, or an impossible one; or no
                version was made for too long.
        """
        updates = self._receiver.updates
        assert updates is not None
        versions = self._versions
        made = await self._aggregation.aggregate(updates)
        version = round.base_version + (made.model is not None)
        closed = ClosedRound(
            updates,
            folded=made.folded,
            weights=made.weights,
            normaliser=made.normaliser,
            version=version,
            model=made.model,
            state=made.state,
            next_s=self._next_s(round) if round.rules.lockstep else None,
            opened_at=opened_at,
            closed_at=self._clock.now(),
            seconds=self._clock.monotonic() - began,
            epsilon=self._aggregation.spent(round.number, version),
        )
        round.happen(RoundEvent.FOLDED)
        next = None
        if round.rules.outlives_round:
            next = updates.successor(self._pending, closed.folded, closed.version, closed.closed_at)
        self._receiver.close_and_stop_senders(versions.committed, next)
        if made.model is not None:
            versions.set_newest(closed.version, made.model, closed.state)
        self._count_barren(closed)
        return closed

    def _count_barren(self, closed: ClosedRound) -> None:
        """Count rounds without a version. If the mode counts versions, they could go on for ever.

        Raises:
            RunFailed: there were too many of them, one after the other.
        """
        self._barren = 0 if closed.model is not None else self._barren + 1
        if self._mode.counts_versions and self._barren >= contract.MOST_BARREN:
            raise RunFailed(
                f"{self._barren:,} rounds in a row made no version, because too few devices took "
                f"part; lower server.mode.k, or look at the answers of the devices in the ledger"
            )

    def _next_s(self, round: Round) -> float:
        """In lockstep, scenario seconds at which the next round opens."""
        next_s = round.rules.life.next_s(
            round.number, lambda: self._mode.next_s(round.end(), self._round_s)
        )
        if round.rules.outlives_round:
            self._links.settle(round, next_s)
            round.next_s = next_s
        return next_s

    async def commit(self, closed: ClosedRound) -> None:
        """Make a closed round durable, and begin the evaluation of its version."""
        pending, updates = self._pending, closed.updates
        answers = updates.answer_rows(pending, closed.closed_at)
        updates.enter(pending, closed.folded, closed.closed_at)
        pending.inline_down += updates.round.sent_bytes
        rows = pending.take(updates.round.number)
        rows.work, rows.ended = self._links.changed()
        reported = self.evaluations.reported(rows.contributions, self._versions.kept)
        rows.measured = self.evaluations.statements(reported)
        row = closed.row(rows.bytes_up, rows.bytes_down)
        open = self._receiver.round
        bases = {member.base_version for member in open.cohort.values()} if open else set()
        writing = self._write, row, answers, rows, closed.model, closed.state, bases
        await self._room.write(f"round {row.round}", lambda: self._worker.run(*writing))
        updates.round.happen(RoundEvent.COMMITTED)
        for estimate in rows.estimates:
            if estimate.name == AppMeasured.name:
                self._tell(estimate.app_measured())
        if self._failures.limited:
            self._enter_ends(rows.contributions, row.round)
        counted = [each.staleness for each in rows.contributions if each.outcome == "folded"]
        self._tell(row.committed(Counter(counted)))
        self.evaluations.entered(reported)
        if closed.model is not None:
            await self.evaluations.after(row.round, row.version)

    def _enter_ends(self, rows: Sequence[ContributionRow], round: int) -> None:
        """Enter how training ended, and tell whom the server leaves out from now on."""
        ends = (TrainingEnd(row.client, row.call_round, row.training_failed) for row in rows)
        for client in self._failures.enter(ends):
            self._tell(LeftOut(round, client, self._failures.in_a_row(client)))

    def _write(
        self,
        row: RoundRow,
        answers: list[AnswerRow],
        rows: PendingTransaction,
        model: Vector | None,
        state: State,
        bases: Collection[int],
    ) -> None:
        versions = self._versions
        stored = versions.put(row.version, model, state)
        rows.memory = rows.memory or self._aggregation.remembered()
        needed = {row.version, row.base_version, *self.evaluations.waiting(), *bases}
        forget = versions.superseded(needed)
        self._ledger.commit(row, answers, rows, stored.model, stored.state, forget)
        # Recorded here, right after the transaction, because the task that waits for this may be
        # cancelled meanwhile.
        versions.commit(Commit(row.round, row.version), model is not None, forget)
