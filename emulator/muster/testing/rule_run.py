"""Plays made-up rounds with a rule as a server does: the same exact sums, the same bases of rules,
the same memory of updates, and the same files of the rule's state. Only the fleet is missing."""

import math
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors.numpy import load, save

from muster.common.compression import Whole
from muster.common.config import validate
from muster.common.errors import RunFailed
from muster.common.exact_sum import ExactSum, squared_norm
from muster.common.exchange import Key, Update
from muster.common.masks import Mask
from muster.common.tensors import WIRE, Vector
from muster.server.account.run_rows import MemoryRow
from muster.server.account.traffic import TransferCost
from muster.server.aggregation.next_model import NextModel
from muster.server.aggregators import Aggregator, Cohort, Contribution, Need, State, Weighing
from muster.server.aggregators.blocks import squared_distances
from muster.server.aggregators.values import MadeModel
from muster.server.knowledge.participation import ParticipationHistory, Seen
from muster.server.updates.memory import MEMORY, UpdateMemory
from muster.server.updates.round_updates import PendingUpdate
from muster.server.updates.uploads import InlineBody, UpdateFormat
from muster.testing.made_up import MadeUpCourse, MadeUpRound, MadeUpUpdate, X
from muster.wire.bodies import body_view, checksum


class RulePoint(NamedTuple):
    """Where a rule stands after a round.

    Attributes:
        model: the newest version.
        state: the state of the rule.
        offered: the model that the run would offer as its result.
        weighing: what the rule said of the round; None if it was not asked.
    """

    model: Vector
    state: State
    offered: Vector
    weighing: Weighing | None

    def bits(self) -> tuple[object, ...]:
        """A value that is equal for two points exactly if no bit of them differs."""
        state = {name: np.asarray(array) for name, array in self.state.items()}
        return (
            self.model.tobytes(),
            self.offered.tobytes(),
            tuple((n, a.dtype.str, a.shape, a.tobytes()) for n, a in sorted(state.items())),
        )


class _Attempt(NamedTuple):
    """A round that is not yet committed."""

    weighing: Weighing | None
    made: MadeModel | None
    memory: Sequence[MemoryRow]


class RuleRun:
    """A run of a rule over a made-up course.

    Args:
        crashes: whether the server crashes before and after every commit: the round is made, lost
            and made again, and the next one begins with what was committed.
        masked: whether updates have the coordinates that their devices trained, not all.

    Attributes:
        rule: the rule; after a crash, a new object with the same settings.
        points: where the rule stood before the first round, and after each.
    """

    def __init__(
        self, rule: Aggregator, course: MadeUpCourse, *, crashes: bool = False, masked: bool = False
    ) -> None:
        self.rule = rule
        self._course = course
        self._crashes = crashes
        self._masked = masked
        self._population = course.population(rule.features())
        self._parameters = len(course.model)
        self._seen: list[Sequence[Seen]] = []
        self._rows: dict[str, MemoryRow] = {}
        self._folder: Path | None = None
        if rule.remembers():
            self._folder = Path(tempfile.mkdtemp(prefix="muster-rule-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        state = rule.initial_state(_frozen(course.model))
        self.points = [self._point(course.model, state, None)]
        self._begin()

    def play(self) -> list[RulePoint]:
        """Play all rounds of the course and return the points."""
        for round in self._course.rounds:
            self.round(round)
        return self.points

    def round(self, round: MadeUpRound) -> RulePoint:
        """Play a round and commit it.

        Raises:
            RunFailed: the rule gave an impossible weight, or a wrong number of weights.
            Diverged: the model has left the range of numbers.
        """
        attempt = self._attempt(round)
        if self._crashes:
            self._recover()
            attempt = self._attempt(round)
        now = self.points[-1]
        for row in attempt.memory:
            self._rows[row.client] = row
        self._seen.append(self._seen_in(round, empty=attempt.made is None))
        model, state = (now.model, now.state) if attempt.made is None else attempt.made[:2]
        if self._crashes:
            self._recover()
            state = restored(state)
        self.points.append(self._point(model, state, attempt.weighing))
        return self.points[-1]

    def _begin(self) -> None:
        """Begin as a server does: with what was committed."""
        oracle = Need.PROPENSITIES in self.rule.needs()
        self._participation = ParticipationHistory(X if oracle else X[:1])
        for seen in self._seen:
            self._participation.enter(seen)
        self._memory: UpdateMemory | None = None
        if self._folder is not None:
            enrolled = [d.client for d in self._course.devices if d.enrolled]
            self._memory = UpdateMemory(self._folder / MEMORY, self._parameters, enrolled)
            self._memory.load(self._rows.values())
        self._sum = ExactSum(self._parameters * self.rule.vectors())
        self._next = NextModel(self.rule, self._sum, self._population, self._memory)

    def _recover(self) -> None:
        self.rule = renewed(self.rule)
        self._begin()

    def _attempt(self, round: MadeUpRound) -> _Attempt:
        now = self.points[-1]
        if Need.PARTICIPATION in self.rule.needs():
            self._participation.enter(self._seen_in(round, empty=False))
        counted = [self._pending(update) for update in round.updates]
        nothing = _Attempt(None, None, ())
        if not counted and not self.rule.makes_every_version():
            return self._emptied(nothing)
        weighing = self.rule.weigh(self._cohort(round, counted), now.state)
        require_possible(self.rule, counted, weighing)
        if not weighing.normaliser:
            return self._emptied(nothing._replace(weighing=weighing))
        self._fold(counted, weighing, now.state)
        masks = [None if u.trained is None else Mask(u.trained) for u in round.updates]
        weighed = len(self.points), counted, weighing
        made = self._next.make(now.model, *weighed, masks=masks if self._masked else None)
        memory = self._memory.durable() if self._memory is not None else ()
        return _Attempt(weighing, made, memory)

    def _emptied(self, attempt: _Attempt) -> _Attempt:
        if Need.PARTICIPATION in self.rule.needs():
            self._participation.nobody()
        return attempt

    def _fold(self, counted: Sequence[PendingUpdate], weighing: Weighing, state: State) -> None:
        """Add the updates up, those that are folded on arrival with the weights of that moment."""
        self._sum.clear()
        weights = weighing.weights
        if self.rule.folds_on_arrival() and all(u.contribution.discount == 1 for u in counted):
            weights = [self.rule.weight(update.contribution, state) for update in counted]
        for update, weight in zip(counted, weights, strict=True):
            update.weight = weight
            if self.rule.adds_up():
                entries = self._sum.parameters
                self._sum.add(update.body.read(0, entries), weight)

    def _cohort(self, round: MadeUpRound, counted: Sequence[PendingUpdate]) -> Cohort:
        contributions = [update.contribution for update in counted]
        needs = self.rule.needs()
        distances = None
        if Need.DISTANCES in needs:
            reads = [update.body.read for update in counted]
            distances = squared_distances(reads, self._sum.parameters)
        return Cohort(
            len(self.points),
            contributions,
            self._population,
            self._participation,
            distances=distances,
            remembered=self._memory.known(c.client for c in contributions) if self._memory else 0,
            valuations=round.valuations if Need.VALUATIONS in needs else {},
        )

    def _pending(self, made_up: MadeUpUpdate) -> PendingUpdate:
        """The update as the server has it after its admission."""
        trained = made_up.trained if self._masked else None
        mask = None if trained is None else Mask(trained)
        delta = made_up.delta if trained is None else made_up.delta[trained]
        vector = np.ascontiguousarray(delta, WIRE)
        body = InlineBody(bytes(body_view(vector)), UpdateFormat(_PLAIN, len(vector), mask=mask))
        key = Key(made_up.contribution.client, len(self.points), 1)
        examples = made_up.contribution.examples
        update = Update(key, examples, checksum(body.encoded()), vector.nbytes, 0.0, 0.0, 0.0)
        if fault := body.fault(update):
            raise ValueError(f"the update of {key.client} would be refused: {fault[1]}")
        norm = math.nan
        if Need.NORM in self.rule.needs():
            norm = squared_norm(body.read, self._sum.parameters)
        contribution = self._known(made_up.contribution._replace(squared_norm=norm))
        return PendingUpdate(update, contribution, body, TransferCost())

    def _known(self, contribution: Contribution) -> Contribution:
        """The contribution without the facts that the rule does not need."""
        needs = self.rule.needs()
        unknown: dict[str, float] = {}
        if Need.STEPS not in needs:
            unknown["effective_steps"] = math.nan
        if Need.LOSS not in needs:
            unknown |= {"initial_loss": math.nan, "learning_rate": math.nan}
        return contribution._replace(**unknown)  # type: ignore[arg-type]

    def _seen_in(self, round: MadeUpRound, empty: bool) -> Sequence[Seen]:
        """The rows of a round in the history of participation."""
        here = () if empty else {update.contribution.client for update in round.updates}
        return [
            Seen(
                place,
                device.client in here,
                dict(zip(X, round.x.get(device.client, (0.0, 0.5)), strict=True)),
                0.0,
            )
            for place, device in enumerate(self._course.devices)
            if device.enrolled
        ]

    def _point(self, model: Vector, state: State, weighing: Weighing | None) -> RulePoint:
        model = _frozen(model)
        return RulePoint(model, state, self.rule.result(state, model), weighing)


_PLAIN = Whole(kind="none")


def renewed(rule: Aggregator) -> Aggregator:
    """A rule as a new process has it: a new object with the same settings."""
    return validate(type(rule), rule.model_dump(), "the rule")


def restored(state: State) -> State:
    """A rule's state after it was written to a file and read again."""
    arrays = {n: np.ascontiguousarray(a).reshape(np.shape(a)) for n, a in state.items()}
    return load(save(arrays)) if arrays else {}


def require_possible(
    rule: Aggregator, counted: Sequence[PendingUpdate], weighing: Weighing
) -> None:
    """Raise RunFailed if a rule gave weights with which the server ends the run."""
    weights = weighing.weights
    if len(weights) != len(counted):
        raise RunFailed(
            f"the aggregator {rule.kind!r} gave {len(weights)} weights to {len(counted)} updates"
        )
    for update, weight in zip(counted, weights, strict=True):
        if not 0 <= weight < math.inf:
            raise RunFailed(
                f"the aggregator {rule.kind!r} gave {update.contribution.client} the weight "
                f"{weight}; expected a finite number >= 0"
            )
    if not 0 <= weighing.normaliser < math.inf:
        raise RunFailed(
            f"the aggregator {rule.kind!r} divides by {weighing.normaliser}; expected a finite "
            f"number, or 0 for an empty round"
        )


def _frozen(vector: Vector) -> Vector:
    """A copy of a vector that cannot be written to, as the vectors of committed versions."""
    frozen = np.array(vector, np.float32)
    frozen.flags.writeable = False
    return frozen
