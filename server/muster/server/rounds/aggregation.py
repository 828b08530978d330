"""Aggregation: weighs the updates that count in a round, and makes the next version from them."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

from muster.common.clock import Clock
from muster.common.errors import RunFailed
from muster.common.events import Tell, Warned
from muster.common.exchange import Valuation
from muster.common.schedules import rate_at
from muster.common.seeds import FloatArray
from muster.common.tensors import Vector
from muster.server.account.ledger import Ledger
from muster.server.account.rows import MemoryRow, ParticipationRow
from muster.server.aggregators import OF_UPDATES, Cohort, Need, State, Weighing
from muster.server.config import ServerProcess
from muster.server.knowledge.participation import ParticipationHistory
from muster.server.knowledge.population import Population
from muster.server.privacy.accountant import Accountant
from muster.server.privacy.mechanism import clipped_weights, noise_of
from muster.server.privacy.settings import Privacy
from muster.server.rounds.room_on_disk import RoomOnDisk
from muster.server.rounds.round import Round
from muster.server.rounds.versions import ModelVersions
from muster.server.updates.blocks import combined, squared_distances
from muster.server.updates.coverage import Coverage, apply_covered
from muster.server.updates.exact_sum import apply, moved
from muster.server.updates.kept import KeptUpdates
from muster.server.updates.memory import UpdateMemory
from muster.server.updates.receiver import UpdateReceiver
from muster.server.updates.round_updates import PendingUpdate, RoundUpdates
from muster.server.worker import WorkerThread

if TYPE_CHECKING:
    from muster.server.account.pending_rows import PendingRows


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
        kept: where the updates of every round are kept; None if they are not.
        memory: the last updates of all clients; None unless the model changes by memory.
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
        clock: Clock,
        tell: Tell,
        memory: UpdateMemory | None = None,
        kept: KeptUpdates | None = None,
    ) -> None:
        self._config = config
        self._rule = config.server.aggregator
        # A rule that weighs parameters gets θ_i = base version + Δ_i. In the synchronous mode all
        # devices have the same base version, so that only Σ w·Δ is needed.
        self._adds_bases = self._rule.weighs == "parameters" and config.server.mode.carries
        self._learns = Need.PARTICIPATION in self._rule.needs()
        self._versions = versions
        self._receiver = receiver
        self._pending: PendingRows = receiver.pending
        self._population = population
        self._participation = participation
        self._worker = worker
        self._room = room
        self._clock = clock
        self._tell = tell
        privacy = config.server.privacy
        self._privacy = privacy if config.server.clips else None
        self._accountant = Accountant(privacy, config.sample) if privacy else None
        self._memory = memory
        self._kept = kept
        self._warned = set[str]()
        self._coverage: Coverage | None = None  # made if devices train parts of the model

    def prepare(self) -> None:
        """Import what aggregation needs. It takes seconds, and runs while the fleet assembles."""
        self._rule.prepare()
        if self._accountant is not None:
            self._accountant.prepare()

    def spent(self, round: int, version: int) -> float | None:
        """ε of the rounds up to this one; None without noise.

        Every version is a release of the server. Of a device with local noise, every update is one,
        and it sends at most one in a round.
        """
        if self._accountant is None:
            return None
        return self._accountant.epsilon(round if self._privacy is None else version)

    async def aggregate(self, updates: RoundUpdates) -> Aggregated:
        """Make the next version from the updates of a round that no longer collects.

        Raises:
            Diverged: the sum of the updates left its range.
            RunFailed: the aggregator gave a wrong number of weights, or an impossible one, or
                combined the updates into an array of another shape.
        """
        round = updates.round
        counted = await self._receiver.counted()
        if self._kept is not None:
            keep = self._kept.keep
            await self._room.write("updates", lambda: self._worker.run(keep, round.number, counted))
        weighing = await self._weigh(updates, counted)
        weights, normaliser = weighing.weights, weighing.normaliser
        if not normaliser:
            if self._learns:
                self._participation.nobody()
            if self._kept is not None:
                self._kept.discard(round.number)
            return Aggregated((), weights, normaliser, None, self._versions.state)
        state = weighing.state
        if self._privacy is not None:
            await self._worker.run(self._add_noise, round, self._privacy)
        match self._rule.change:
            case "memory":
                model = await self._worker.run(self._recalled, round, counted, weighing)
            case "recall":
                model = await self._worker.run(self._all_recalled, round, counted, weighing)
            case "combination":
                model = await self._worker.run_in_thread(self._combined, round, counted)
            case "step":
                model, state = await self._worker.run(self._optimised, round, normaliser, state)
            case "sum" if self._receiver.formats.masked:
                step = self._masked_step, round, counted, weighing
                model, coverage = await self._worker.run(*step)
                self._pending.estimates(round.number, {"coverage": coverage})
            case "sum":
                if self._adds_bases:
                    await self._worker.run(self._add_bases, round, counted)
                model = await self._worker.run(self._step, round, weights, normaliser)
        return Aggregated(counted, weights, normaliser, model, self._rule.next_state(state, model))

    def load(self, ledger: Ledger) -> None:
        """Load what the aggregator remembers of committed rounds."""
        if self._memory is not None:
            self._memory.load(ledger.memory())
        if self._kept is not None:
            self._kept.load(ledger.newest_round())

    def remembered(self) -> Sequence[MemoryRow]:
        """Make the remembered updates of the newest round durable, and return the rows that name
        them."""
        return self._memory.durable() if self._memory is not None else ()

    async def _weigh(self, updates: RoundUpdates, counted: Sequence[PendingUpdate]) -> Weighing:
        """Compute the weights and fold the updates with them. A normaliser of 0 means that the
        round is empty."""
        contributions = [update.contribution for update in counted]
        if self._learns:
            self._learn(updates, {contribution.client for contribution in contributions})
        least = 0 if self._rule.change == "recall" else self._config.server.minimum
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
        if self._privacy is not None:
            weighing = clipped_weights(contributions, self._rule, state, self._privacy)
        elif self._rule.needs() - OF_UPDATES:  # fits and solvers take long; devices go on sending
            weighing = await self._worker.run_in_thread(self._rule.weigh, cohort, state)
        else:
            weighing = self._rule.weigh(cohort, state)
        if len(weighing.weights) != len(counted):
            raise RunFailed(
                f"the aggregator {self._rule.kind!r} gave {len(weighing.weights)} weights to "
                f"{len(counted)} updates"
            )
        # Without a normaliser, the updates may still count in a later round.
        if weighing.normaliser and self._memory is None:
            await self._receiver.fold(counted, weighing.weights)
        self._pending.estimates(number, weighing.estimates)
        for warning in set(weighing.warnings) - self._warned:
            self._warned.add(warning)
            self._tell(Warned(number, self._rule.kind, warning))
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

    def _masked_step(
        self, round: Round, counted: Sequence[PendingUpdate], weighing: Weighing
    ) -> tuple[Vector, Mapping[str, float]]:
        """The next model if updates have parts of it, model + s·ψ ⊙ Σ w·m⊙Δ / normaliser, and the
        coverage of its coordinates."""
        model, receiver = self._versions.model, self._receiver
        if self._coverage is None:
            self._coverage = Coverage(len(model))
        masks = [receiver.formats.mask_of(update.update.key) for update in counted]
        compensates = self._rule.compensates()
        self._coverage.enter(masks, weighing.weights, weighing.normaliser, compensates)
        scale = self._scale(round)
        return apply_covered(model, receiver.sum, self._coverage, scale), self._coverage.shares()

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

    def _optimised(self, round: Round, normaliser: float, state: State) -> tuple[Vector, State]:
        """The next model and state of a rule that takes the step of an optimizer."""
        mean = self._receiver.sum.total() * (self._scale(round) / normaliser)
        step, state = self._rule.step(mean, state)
        return moved(self._versions.model, step), state

    def _recalled(
        self, round: Round, counted: Sequence[PendingUpdate], weighing: Weighing
    ) -> Vector:
        """The next model if it changes by memory; the round's updates become the last ones.

        Raises:
            RunFailed: the weights differ, or are impossible.
        """
        weight = weighing.weights[0]
        if set(weighing.weights) != {weight} or not 0 <= weight < math.inf:
            raise RunFailed(
                f"the aggregator {self._rule.kind!r} remembers updates and gave them the weights "
                f"{sorted(set(weighing.weights))[:3]}; expected the same finite number >= 0 for all"
            )
        for update in counted:
            update.weight = weight
        fresh, past = weight / weighing.normaliser, weighing.past
        scale = self._scale(round)
        model, number = self._versions.model, round.number
        assert self._memory is not None
        return self._memory.step(model, counted, number, fresh=scale * fresh, past=scale * past)

    def _all_recalled(
        self, round: Round, counted: Sequence[PendingUpdate], weighing: Weighing
    ) -> Vector:
        """The next model if it changes by what is retained of all clients, each with a weight.

        Raises:
            RunFailed: a client has no weight, or an impossible one.
        """
        for client in compress(self._population.clients, self._population.enrolled):
            if not 0 <= (given := weighing.recalled.get(client, math.nan)) < math.inf:
                raise RunFailed(
                    f"the aggregator {self._rule.kind!r} recalls what all devices have sent, and "
                    f"gave the weight {given} to {client}; expected a finite number >= 0 for each"
                )
        for update, weight in zip(counted, weighing.weights, strict=True):
            update.weight = weight
        scale = self._scale(round) / weighing.normaliser
        weights = {client: scale * weight for client, weight in weighing.recalled.items()}
        assert self._memory is not None
        order = counted, round.number, weights, self._rule.retains()
        return self._memory.recall(self._versions.model, *order)

    def _combined(self, round: Round, counted: Sequence[PendingUpdate]) -> Vector:
        """The next model if the updates are combined coordinate by coordinate."""
        reads = [update.body.read for update in counted if update.weight]
        combine = partial(self._rule.combine, counted=len(counted))
        step = combined(reads, self._receiver.sum.parameters, combine)
        return moved(self._versions.model, step * self._scale(round))

    def _scale(self, round: Round) -> float:
        """The factor of the weighted sum. Devices that return gradients leave the step, and its
        sign, to the server."""
        rate = self._config.gradient_step
        return 1.0 if rate is None else -rate_at(rate, round.number)
