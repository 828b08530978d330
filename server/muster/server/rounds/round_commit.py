"""The end of a round: weigh its updates, make the next version of the model, and commit both."""

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from muster.common.clock import Clock
from muster.common.errors import RunFailed
from muster.common.events import Tell, Warned
from muster.common.exchange import Commit
from muster.common.schedules import rate_at
from muster.common.tensors import Vector
from muster.server.account.ledger import Ledger
from muster.server.account.rows import AnswerRow, ParticipationRow, PendingTransaction, RoundRow
from muster.server.aggregators import Cohort, Need, State, Weighing
from muster.server.config import ServerProcess
from muster.server.evaluation.schedule import EvaluationSchedule
from muster.server.knowledge.participation import ParticipationHistory
from muster.server.knowledge.population import Population
from muster.server.rounds.closed_round import ClosedRound
from muster.server.rounds.lifecycle import Round, RoundEvent
from muster.server.rounds.modes.contract import RoundEnd
from muster.server.rounds.versions import ModelVersions
from muster.server.updates.exact_sum import apply, moved
from muster.server.updates.receiver import UpdateReceiver
from muster.server.updates.round_updates import PendingUpdate, RoundUpdates
from muster.server.worker import WorkerThread

if TYPE_CHECKING:
    from muster.server.account.pending_rows import PendingRows


class RoundCommit:
    """Closes rounds and makes them durable.

    Attributes:
        evaluations: the schedule of the evaluations of versions; set before the first round.

    Args:
        population: what the aggregator may know of all devices.
    """

    evaluations: EvaluationSchedule

    def __init__(
        self,
        config: ServerProcess,
        ledger: Ledger,
        versions: ModelVersions,
        receiver: UpdateReceiver,
        population: Population,
        participation: ParticipationHistory,
        worker: WorkerThread,
        clock: Clock,
        tell: Tell,
    ) -> None:
        self._config = config
        self._rule = config.server.aggregator
        # A rule that weighs parameters gets θ_i = base version + Δ_i. In the synchronous mode all
        # devices have the same base version, so that only Σ w·Δ is needed.
        self._adds_bases = self._rule.weighs == "parameters" and config.server.mode.carries
        self._learns = Need.PARTICIPATION in self._rule.needs()
        self._ledger = ledger
        self._versions = versions
        self._receiver = receiver
        self._pending: PendingRows = receiver.pending
        self._population = population
        self._participation = participation
        self._worker = worker
        self._clock = clock
        self._tell = tell
        self._warned = set[str]()

    # --- aggregating -----------------------------------------------------------------------------

    async def close(self, round: Round, opened_at: float, began: float) -> ClosedRound:
        """Aggregate the updates of a round that no longer collects.

        Args:
            opened_at: UNIX seconds at which the round opened.
            began: monotonic seconds of the same moment.

        Raises:
            Diverged: the sum of the updates left its range.
            RunFailed: the aggregator gave a wrong number of weights, or an impossible one.
        """
        updates = self._receiver.updates
        assert updates is not None
        versions = self._versions
        counted = await self._receiver.counted()
        weighing = await self._weigh(updates, counted)
        weights, normaliser = weighing.weights, weighing.normaliser
        model, state = None, weighing.state
        if normaliser and self._rule.optimises:
            model, state = await self._worker.run(self._optimised, round, normaliser, state)
        elif normaliser:
            if self._adds_bases:
                await self._worker.run(self._add_bases, round, counted)
            model = await self._worker.run(self._step, round, weights, normaliser)
        if model is None and self._learns:
            self._participation.nobody()
        closed = ClosedRound(
            updates,
            folded=() if model is None else counted,
            weights=weights,
            normaliser=normaliser,
            version=round.base_version + (model is not None),
            model=model,
            state=versions.state if model is None else self._rule.next_state(state, model),
            next_s=self._next_s(round, counted) if round.rules.lockstep else None,
            opened_at=opened_at,
            closed_at=self._clock.now(),
            seconds=self._clock.monotonic() - began,
        )
        round.happen(RoundEvent.FOLDED)
        next = None
        if round.rules.carries:
            next = updates.successor(self._pending, closed.folded, closed.version, closed.closed_at)
        self._receiver.close_and_stop_senders(versions.committed, next)
        if model is not None:
            versions.set_newest(closed.version, model, closed.state)
        return closed

    async def _weigh(self, updates: RoundUpdates, counted: Sequence[PendingUpdate]) -> Weighing:
        """Compute the weights and fold the updates with them. A normaliser of 0 means that the
        round is empty."""
        contributions = [update.contribution for update in counted]
        if self._learns:
            self._learn(updates, {contribution.client for contribution in contributions})
        if len(counted) < self._config.server.minimum:
            return Weighing((), 0.0, self._versions.state)
        number, state = updates.round.number, self._versions.state
        cohort = Cohort(number, contributions, self._population, self._participation)
        if self._rule.needs():  # fits and solvers take long; devices go on sending
            weighing = await self._worker.run_in_thread(self._rule.weigh, cohort, state)
        else:
            weighing = self._rule.weigh(cohort, state)
        if len(weighing.weights) != len(counted):
            raise RunFailed(
                f"the aggregator {self._rule.kind!r} gave {len(weighing.weights)} weights to "
                f"{len(counted)} updates"
            )
        await self._receiver.fold(counted, weighing.weights)
        self._pending.estimates(number, weighing.estimates)
        for warning in set(weighing.warnings) - self._warned:
            self._warned.add(warning)
            self._tell(Warned(number, self._rule.kind, warning))
        return weighing

    def _next_s(self, round: Round, counted: Sequence[PendingUpdate]) -> float:
        """In lockstep, scenario seconds at which the next round opens."""
        finished = [round.cohort[update.update.key.client].finish_s for update in counted]
        ended = RoundEnd(round.number, round.scenario_s or 0.0, finished, round.untried)
        return self._config.server.mode.next_s(ended, self._config.round_s)

    def _learn(self, updates: RoundUpdates, counts: set[str]) -> None:
        """Enter in the participation history which devices contributed to a round."""
        rows = (
            ParticipationRow(row.round, row.client, row.client in counts, row.x, row.x_age_s)
            for row in updates.answer_rows(self._pending, self._clock.now())
        )
        self._participation.enter(self._pending.participation(rows))

    def _step(self, round: Round, weights: Sequence[float], normaliser: float) -> Vector:
        """The next model: κ · model + s · Σ w·Δ / normaliser."""
        keep = 1.0
        if self._rule.weighs == "parameters":
            share = math.fsum(weights) / normaliser
            keep = 1.0 - share if self._rule.mixes else 0.0
            if not self._adds_bases:
                keep += share
        return apply(
            self._versions.model,
            self._receiver.sum,
            keep=keep,
            scale=self._scale(round),
            normaliser=normaliser,
        )

    def _add_bases(self, round: Round, counted: Sequence[PendingUpdate]) -> None:
        """Add the base version of every update to the sum, with the weight of the update."""
        weights: dict[int, list[float]] = {}
        for update in counted:
            assert update.weight is not None
            base_version = round.cohort[update.update.key.client].base_version
            weights.setdefault(base_version, []).append(update.weight)
        for base_version, of_base in weights.items():
            self._receiver.sum.add(self._versions.vector_of(base_version), math.fsum(of_base))

    def _optimised(self, round: Round, normaliser: float, state: State) -> tuple[Vector, State]:
        """The next model and state of a rule that takes the step of an optimizer."""
        mean = self._receiver.sum.total() * (self._scale(round) / normaliser)
        step, state = self._rule.step(mean, state)
        return moved(self._versions.model, step), state

    def _scale(self, round: Round) -> float:
        """The factor of the weighted sum. Devices that return gradients leave the step, and its
        sign, to the server."""
        rate = self._config.gradient_step
        return 1.0 if rate is None else -rate_at(rate, round.number)

    # --- committing ------------------------------------------------------------------------------

    async def commit(self, closed: ClosedRound) -> None:
        """Make a closed round durable, and begin the evaluation of its version."""
        pending, updates = self._pending, closed.updates
        answers = updates.answer_rows(pending, closed.closed_at)
        updates.enter(pending, closed.folded, closed.closed_at)
        pending.inline_down += updates.round.sent_bytes
        rows = pending.take(updates.round.number)
        row = closed.row(rows.bytes_up, rows.bytes_down)
        open = self._receiver.round
        bases = {member.base_version for member in open.cohort.values()} if open else set()
        await self._worker.run(self._write, row, answers, rows, closed.model, closed.state, bases)
        updates.round.happen(RoundEvent.COMMITTED)
        self._tell(row.committed())
        if closed.model is not None:
            count = row.version if self._config.server.mode.counts_versions else row.round
            await self.evaluations.after(count, row.round, row.version)

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
        needed = {row.version, row.base_version, *self.evaluations.waiting(), *bases}
        forget = versions.superseded(needed)
        self._ledger.commit(row, answers, rows, stored.model, stored.state, forget)
        # Recorded here, right after the transaction, because the task that waits for this may be
        # cancelled meanwhile.
        versions.commit(Commit(row.round, row.version), model is not None, forget)
