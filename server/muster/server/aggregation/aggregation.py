"""Aggregation: lets the rule weigh the updates that count, and makes the next version from them."""

import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from muster.common.clock import Clock
from muster.common.errors import Diverged, RunFailed
from muster.common.events import Tell, Warned
from muster.common.exchange import Reason, Valuation
from muster.common.schedules import rate_at
from muster.common.seeds import FloatArray
from muster.common.tensors import Vector
from muster.server.account.ledger import Ledger
from muster.server.account.ledger_reader import ParticipationRow
from muster.server.account.run_rows import MemoryRow
from muster.server.aggregation.accountant import Accountant
from muster.server.aggregation.next_model import NextModel
from muster.server.aggregation.strategy_rounds import replies_of
from muster.server.aggregation.versions import ModelVersions
from muster.server.aggregators import OF_UPDATES, Cohort, Need, State, Weighing
from muster.server.aggregators.blocks import squared_distances
from muster.server.knowledge.participation import ParticipationHistory
from muster.server.knowledge.population import Population
from muster.server.rounds.round import Round
from muster.server.runtime.room_on_disk import RoomOnDisk
from muster.server.runtime.worker import WorkerThread
from muster.server.settings.privacy import Privacy
from muster.server.settings.process import ServerProcess
from muster.server.strategy.driver import StrategyDriver
from muster.server.updates.folding import fault_of
from muster.server.updates.kept import KeptSums, KeptUpdates
from muster.server.updates.memory import UpdateMemory
from muster.server.updates.partial_sums import ArrivedSum, PartialSums
from muster.server.updates.privacy import clipped_weights, noise_of
from muster.server.updates.receiver import UpdateReceiver
from muster.server.updates.round_updates import PendingUpdate, RoundUpdates

if TYPE_CHECKING:
    from muster.server.account.pending_rows import PendingRows
    from muster.server.updates.secure_sums import OpenedSum, SecureSums


_NO_MODEL = (
    "the strategy ended without showing the model that its last round made; the newest version is "
    "the one with which that round began"
)


_TRIES = 3
"""Times that the server asks for the sums of a round, if some of them do not come."""


class Aggregated(NamedTuple):
    """What a round made of its updates.

    Attributes:
        folded: the updates that count; empty for an empty round.
        weights: one per update that counts.
        model: the next version of the model; None for an empty round.
        state: the aggregator's next state.
    """

    folded: Sequence[PendingUpdate]
    weights: Sequence[float]
    normaliser: float
    model: Vector | None
    state: State


class Aggregation:
    """Lets the aggregator of the run weigh the updates of a round, and changes the model.

    Args:
        population: what the aggregator may know of all devices.
        sums: asks for the sums of updates that processes hold.
        kept: where the updates of every round are kept; None if they are not.
        kept_sums: where the secure sum of every round is kept; None if it is not.
        memory: the last updates of all clients; None unless the aggregator remembers.
        strategy: makes the versions in place of the rule; None: none does.
        secure: asks for secure sums in place of those that processes hold; None: nobody does.
    """

    def __init__(
        self,
        config: ServerProcess,
        versions: ModelVersions,
        receiver: UpdateReceiver,
        population: Population,
        participation: ParticipationHistory,
        worker: WorkerThread,
        room: RoomOnDisk,
        sums: PartialSums,
        clock: Clock,
        tell: Tell,
        memory: UpdateMemory | None = None,
        kept: KeptUpdates | None = None,
        kept_sums: KeptSums | None = None,
        strategy: StrategyDriver | None = None,
        secure: "SecureSums | None" = None,
    ) -> None:
        self._config = config
        self._rule = config.server.aggregator
        # A rule that weighs parameters gets θ_i = base version + Δ_i. In the synchronous mode all
        # devices have the same base version, so that only Σ w·Δ is needed.
        self._adds_bases = self._rule.weighs == "parameters" and config.server.mode.outlives_round()
        counted = config.tensors.counted
        self._next = NextModel(
            self._rule, receiver.sum, population, memory, self._adds_bases, counted
        )
        self._learns = Need.PARTICIPATION in self._rule.needs()
        self._versions = versions
        self._receiver = receiver
        self._pending: PendingRows = receiver.pending
        self._population = population
        self._participation = participation
        self._worker = worker
        self._room = room
        self._sums = sums
        self._secure = secure
        self._clock = clock
        self._tell = tell
        privacy = config.server.privacy
        self._clip = config.server.clip
        self._noise = privacy if privacy is not None and privacy.place.in_versions else None
        self._accountant = Accountant(privacy, config.sample) if privacy else None
        self._memory = memory
        self._kept, self._kept_sums = kept, kept_sums
        self._round_files = [files for files in (kept, kept_sums) if files is not None]
        self._strategy = strategy
        self._warned = set[str]()

    def prepare(self) -> None:
        """Import what aggregation needs. It takes seconds, and runs while the fleet assembles."""
        self._rule.prepare()
        if self._accountant is not None:
            self._accountant.prepare()

    def spent(self, round: int, version: int) -> float | None:
        """ε of the rounds up to this one; None without noise.

        Every version is a release of the server. Of a device with local noise, every update is one,
        and it sends at most one in a round. Of a secure sum, every round is one, because the sum of
        a round without a version may have been opened.
        """
        if self._accountant is None:
            return None
        return self._accountant.epsilon(self._accountant.releases(round, version))

    async def aggregate(self, updates: RoundUpdates) -> Aggregated:
        """Make the next version from the updates of a round that no longer collects.

        Raises:
            Diverged: the sum of the updates left its range, or no update counts and some are too
                large for an exact sum.
            RunFailed: the aggregator gave a wrong number of weights, or an impossible one, or
                combined the updates into an array of another shape.
        """
        round = updates.round
        counted: Sequence[PendingUpdate] = await self._receiver.counted()
        _require_some(updates, counted)
        if self._kept is not None:
            keep = self._kept.keep
            await self._room.write("updates", lambda: self._worker.run(keep, round.number, counted))
        if self._strategy is not None:
            return await self._made_by(self._strategy, round, counted)
        counted, weighing = await self._weigh_and_fold(updates, counted)
        weights, normaliser = weighing.weights, weighing.normaliser
        if not normaliser:
            if self._learns:
                self._participation.nobody()
            for files in self._round_files:
                files.discard(round.number)
            return Aggregated((), weights, normaliser, None, self._versions.state)
        if self._noise is not None:
            await self._worker.run(self._add_noise, round, self._noise)
        if self._adds_bases:
            await self._worker.run(self._add_bases, round, counted)
        run = self._worker.run_in_thread if self._rule.computes_long() else self._worker.run
        masks = None
        if self._receiver.formats.masked:
            masks = [self._receiver.formats.mask_of(update.update.key) for update in counted]
        weighed = round.number, counted, weighing, self._scale(round), masks
        made = await run(self._next.make, self._versions.model, *weighed)
        if made.estimates:
            self._pending.estimates(round.number, made.estimates)
        return Aggregated(counted, weights, normaliser, made.model, made.state)

    async def _made_by(
        self, strategy: StrategyDriver, round: Round, counted: Sequence[PendingUpdate]
    ) -> Aggregated:
        """The version that a strategy makes of a round. A round is empty if no update counts and
        the strategy leaves the model as it is.

        Raises:
            Diverged: the model has an entry that is not finite.
            RunFailed: the strategy failed.
        """
        assert strategy.push is not None
        clients, parameters = self._population.clients, self._receiver.sum.parameters
        about = strategy.push, clients, round, counted, parameters
        replies = await self._worker.run(replies_of, *about)

        def store(write: Callable[[], None]) -> Awaitable[None]:
            return self._room.write("replies", lambda: self._worker.run(write))

        before = strategy.push.measured if round.number == 1 else {}
        said = await strategy.conclude(round.number, replies, store)
        self._pending.measured(0, before)
        self._pending.measured(round.number, said.measured)
        old, model = self._versions.model, said.model
        if model is None:
            model = old
            self._tell(Warned(round.number, self._rule.kind, _NO_MODEL))
        if not np.isfinite(model).all():
            raise Diverged("the strategy made a model with entries that are not finite")
        if not counted and model.tobytes() == old.tobytes():
            return Aggregated((), (), 0.0, None, self._versions.state)
        for update in counted:
            update.weight = 1.0
        weights = [1.0] * len(counted)
        return Aggregated(counted, weights, math.fsum(weights), model, self._versions.state)

    def load(self, ledger: Ledger) -> None:
        """Load what the aggregator remembers of committed rounds."""
        if self._memory is not None:
            self._memory.load(ledger.memory())
        for files in self._round_files:
            files.load(ledger.newest_round())

    def remembered(self) -> Sequence[MemoryRow]:
        """Make the remembered updates of the newest round durable, and return the rows that name
        them."""
        return self._memory.durable() if self._memory is not None else ()

    async def _weigh_and_fold(
        self, updates: RoundUpdates, counted: Sequence[PendingUpdate]
    ) -> tuple[Sequence[PendingUpdate], Weighing]:
        """Compute the weights, and fold the updates with them.

        Returns:
            The updates that count, without those whose process has not sent their sum; and the
            weights. A normaliser of 0 means that the round is empty.

        Raises:
            RunFailed: a sum is missing in lockstep, where its absence would change the result.
            RunStops: the run is to stop, and a sum has not arrived.
        """
        round = updates.round
        if self._secure is not None:
            held = [update for update in counted if update.held]
            alone = self._secure.alone(round.number, held)
            updates.left_out |= dict.fromkeys(alone, Reason.SUM_MISSING)
            counted = [u for u in counted if u.update.key.client not in alone]
        for tries_left in reversed(range(_TRIES)):
            counted, weighing = await self._weighed(updates, counted)
            if not weighing.normaliser:  # the updates may still count in a later round
                break
            if self._memory is not None:  # which adds them up
                for update, weight in zip(counted, weighing.weights, strict=True):
                    update.weight = weight
                break
            missing, folded = await self._fold(round, counted, weighing.weights)
            if not missing:
                break
            self._refuse_missing_in_lockstep(round, missing)
            if not tries_left:  # else processes that withhold one after the other could go on
                missing = {update.update.key.client for update in counted if update.held}
            updates.left_out |= dict.fromkeys(missing, Reason.SUM_MISSING)
            counted = [u for u in counted if u.update.key.client not in missing]
            if folded:  # each weight depends on its own update alone
                counted, weighing = await self._weighed(updates, counted)
                break
        else:
            counted, weighing = await self._weighed(updates, counted)
            if weighing.normaliser:
                await self._receiver.fold(counted, weighing.weights)
        self._pending.estimates(round.number, weighing.estimates)
        for warning in set(weighing.warnings) - self._warned:
            self._warned.add(warning)
            self._tell(Warned(round.number, self._rule.kind, warning))
        return counted, weighing

    async def _fold(
        self, round: Round, counted: Sequence[PendingUpdate], weights: Sequence[float]
    ) -> tuple[Collection[str], bool]:
        """Fold updates with their weights, and the sums of those that processes hold.

        In lockstep the server waits for sums as long as anything arrives within `server.stall_s`.
        On other clocks it waits once more as long as the round may be open.

        Returns:
            The clients whose updates are in no sum that has come; and whether the others are folded
            nevertheless. A secure sum cannot be asked for again without them, because the
            difference of two sums would be theirs.
        """
        sums: Sequence[ArrivedSum | OpenedSum] = ()
        missing: Collection[str] = ()
        held = [(u, weight) for u, weight in zip(counted, weights, strict=True) if u.held]
        if held:
            updates, of_held = zip(*held, strict=True)
            bounds = [weight * update.body.largest for update, weight in held]
            if self._secure is not None:
                bounds = [*self._secure.bounds(updates, of_held)]
            self._receiver.sum.require_range(bounds)
            settings = self._config.server
            open_s = round.rules.open_s(settings.deadline_s)
            renewed = round.rules.lockstep or open_s is None
            patience_s = settings.stall_s if open_s is None or renewed else open_s
            waits = patience_s, renewed
            if self._secure is not None:
                number = round.number
                opened, missing = await self._secure.collect(number, updates, of_held, *waits)
                await self._keep_sums(number, opened)
                sums = opened
            else:
                sums, missing = await self._sums.collect(updates, of_held, *waits)
        folds = not missing or (self._secure is not None and bool(sums))
        try:
            if not folds:
                return missing, False
            await self._receiver.fold(counted, weights)
            for sum in sums:
                await self._worker.run(sum.add_to, self._receiver.sum)
        finally:
            for sum in sums:
                sum.close()
        return missing, True

    async def _keep_sums(self, round: int, sums: "Sequence[OpenedSum]") -> None:
        """Write down the secure sums of a round, if the run keeps them."""
        if (kept := self._kept_sums) is not None and sums:
            write = partial(kept.keep, round, [sum.total.encoded() for sum in sums])
            await self._room.write("sums", partial(self._worker.run, write))

    def _refuse_missing_in_lockstep(self, round: Round, missing: Collection[str]) -> None:
        """Allow that sums are missing, on clocks on which devices may be lost, and of devices that
        have been revoked.

        Raises:
            RunFailed: in lockstep, results must not depend on how long a process takes; and a rule
                that learns has already learned that the devices took part.
        """
        if round.rules.lockstep and (self._learns or not self._sums.revoked_only(missing)):
            server = self._config.server
            refused = "refused its part again and again, " if server.secure else ""
            raise RunFailed(
                f"round {round.number} lacks the sum with the update of {min(missing)} "
                f"({len(missing)} in all): its process sent nothing for {server.stall_s:g} s "
                f"(server.stall_s), {refused}or was revoked. Resume the run, which repeats the "
                f"round"
            )

    async def _weighed(
        self, updates: RoundUpdates, counted: Sequence[PendingUpdate]
    ) -> tuple[Sequence[PendingUpdate], Weighing]:
        """Compute the weights of the updates, and leave out those that these weights make too large
        for an exact sum. If weights are known on arrival, such updates were refused then.

        Raises:
            Diverged: no other update counts.
        """
        adds_up = self._rule.adds_up() and self._rule.weights == "at-close"
        while True:
            weighing = await self._weigh(updates, counted)
            left = len(updates.left_out)
            weighed = zip(counted, weighing.weights, strict=False) if adds_up else ()
            for update, weight in weighed:
                if (fault := fault_of(weight, update.body.largest)) is not None:
                    client = update.update.key.client
                    updates.left_out[client] = fault[0]
                    updates.beyond_range = f"{client}: {fault[1]}"
            if len(updates.left_out) == left:
                return counted, weighing
            counted = [u for u in counted if u.update.key.client not in updates.left_out]
            _require_some(updates, counted)

    async def _weigh(self, updates: RoundUpdates, counted: Sequence[PendingUpdate]) -> Weighing:
        """Compute the weights of the updates. A normaliser of 0 means that the round is empty."""
        contributions = [update.contribution for update in counted]
        if self._learns and updates.left_out:  # it has learned already, when all counted
            self._participation.leave_out(self._population.places([*updates.left_out]))
        elif self._learns:
            self._learn(updates, {contribution.client for contribution in contributions})
        least = 0 if self._rule.makes_every_version() else self._config.server.minimum
        if len(counted) < least:
            return Weighing((), 0.0, self._versions.state)
        number, state = updates.round.number, self._versions.state
        known = self._memory.known(c.client for c in contributions) if self._memory else 0
        cohort = Cohort(
            number,
            contributions,
            self._population,
            self._participation,
            distances=await self._distances(counted),
            remembered=known,
            valuations=self._valuations(updates.round),
            seed=self._config.seed,
        )
        if self._clip is not None:
            weighing = clipped_weights(contributions, self._rule, state, self._clip)
        elif self._rule.needs() - OF_UPDATES:  # fits and solvers take long; devices go on sending
            weighing = await self._worker.run_in_thread(self._rule.weigh, cohort, state)
        else:
            weighing = self._rule.weigh(cohort, state)
        if len(weighing.weights) != len(counted):
            raise RunFailed(
                f"the aggregator {self._rule.kind!r} gave {len(weighing.weights)} weights to "
                f"{len(counted)} updates"
            )
        return weighing

    def _valuations(self, round: Round) -> Mapping[str, Valuation]:
        """How rational devices valued the model of a round, if the rule needs it."""
        if Need.VALUATIONS not in self._rule.needs():
            return {}
        answers = ((client, member.answer) for client, member in round.cohort.items())
        return {c: a.valuation for c, a in answers if a is not None and a.valuation is not None}

    async def _distances(self, counted: Sequence[PendingUpdate]) -> FloatArray | None:
        """The squared distances between the updates, if the rule needs them."""
        if Need.DISTANCES not in self._rule.needs():
            return None
        reads = [update.body.read for update in counted]
        return await self._worker.run_in_thread(
            squared_distances, reads, self._receiver.sum.parameters
        )

    def _learn(self, updates: RoundUpdates, counts: set[str]) -> None:
        """Enter in the participation history which devices contributed to a round."""
        rows = (
            ParticipationRow(row.round, row.client, row.client in counts, row.x, row.x_age_s)
            for row in updates.answer_rows(self._pending, self._clock.now())
        )
        self._participation.enter(self._pending.participation(rows))

    def _add_bases(self, round: Round, counted: Sequence[PendingUpdate]) -> None:
        """Add the base version of every update to the sum, with the weight of the update."""
        weights: dict[int, list[float]] = {}
        for update in counted:
            assert update.weight is not None
            base_version = round.cohort[update.update.key.client].base_version
            weights.setdefault(base_version, []).append(update.weight)
        for base_version, of_base in weights.items():
            self._receiver.sum.add(self._versions.vector_of(base_version), math.fsum(of_base))

    def _add_noise(self, round: Round, privacy: Privacy) -> None:
        noise = noise_of(privacy, self._config.seed, round.number, self._receiver.sum.parameters)
        self._receiver.sum.add(noise, 1.0)

    def _scale(self, round: Round) -> float:
        """The factor of the weighted sum. Devices that return gradients leave the step, and its
        sign, to the server."""
        rate = self._config.gradient_step
        return 1.0 if rate is None else -rate_at(rate, round.number)


def _require_some(updates: RoundUpdates, counted: Sequence[PendingUpdate]) -> None:
    """Check that updates are left if some were too large for an exact sum.

    Raises:
        Diverged: none is.
    """
    if not counted and updates.beyond_range:
        raise Diverged(
            f"{updates.beyond_range}; no other update counts. Lower the learning rate, or set "
            f"training.projection_radius or server.guard.max_norm"
        )
