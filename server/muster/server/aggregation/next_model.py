"""The next version of the model, from the updates of a round and the weights of its rule.

This is the arithmetic of a round: it knows neither a clock nor devices, and waits for nothing.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import compress
from typing import Any, NamedTuple

from muster.common.errors import RunFailed
from muster.common.exact_sum import ExactSum, apply, moved
from muster.common.masks import Mask
from muster.common.tensors import Vector
from muster.server.aggregators import Aggregator, State, Weighing
from muster.server.knowledge.population import Population
from muster.server.updates.blocks import combined
from muster.server.updates.coverage import Coverage, apply_covered
from muster.server.updates.memory import UpdateMemory
from muster.server.updates.round_updates import PendingUpdate


class CountedRound(NamedTuple):
    """The updates that count in a round, with what the rule made of them.

    Attributes:
        number: the number of the round.
        counted: the updates that count.
        weighing: the weights of the rule; the normaliser is not 0.
        scale: the factor of the weighted sum.
        masks: the coordinates that each update has, if devices may train parts of the model.
    """

    number: int
    counted: Sequence[PendingUpdate]
    weighing: Weighing
    scale: float = 1.0
    masks: Sequence[Mask | None] | None = None


class MadeModel(NamedTuple):
    """The model that a round made.

    Attributes:
        state: the state of the rule after the round.
        estimates: what was found on the way, for the ledger.
    """

    model: Vector
    state: State
    estimates: Mapping[str, Any] = {}


class NextModel:
    """Changes the model as the rule declares in `change`.

    Args:
        sum: Σ w·Δ of the updates that count, for rules that fold them.
        population: the devices, for rules that recall what all of them have sent.
        memory: the last updates of all clients; None unless the rule needs them.
        sums_parameters: `sum` has the base versions too, so that it is Σ w·θ.
        trained: the coordinates that training may move. The others keep their bits, whatever the
            updates have there, noise adds and arithmetic rounds. None: all may move.
    """

    def __init__(
        self,
        rule: Aggregator,
        sum: ExactSum,
        population: Population,
        memory: UpdateMemory | None = None,
        sums_parameters: bool = False,
        trained: Mask | None = None,
    ) -> None:
        self._rule = rule
        self._sum = sum
        self._population = population
        self._memory = memory
        self._sums_parameters = sums_parameters
        self._trained = trained
        self._coverage: Coverage | None = None  # made if devices train parts of the model

    def make(self, model: Vector, round: CountedRound) -> MadeModel:
        """Return the model that follows on `model`.

        Raises:
            Diverged: the sum left its range, or the model has an entry that is not finite.
            RunFailed: the rule gave weights that its kind of change does not allow, or combined
                the updates into an array of another shape.
        """
        state, estimates = round.weighing.state, {}
        match self._rule.change:
            case "memory":
                new = self._remembered(model, round)
            case "recall":
                new = self._recalled(model, round)
            case "combination":
                new = self._combined(model, round)
            case "step":
                new, state = self._stepped(model, round)
            case "sum" if round.masks is not None:
                new, coverage = self._added_where_trained(model, round, round.masks)
                estimates = {"coverage": coverage}
            case "sum":
                new = self._added(model, round)
        if self._trained is not None:
            new = self._trained.replace(model, new)
        return MadeModel(new, self._rule.next_state(state, new), estimates)

    def _added(self, model: Vector, round: CountedRound) -> Vector:
        """κ·model + s·Σ w·Δ / normaliser."""
        weights, normaliser, keep = round.weighing.weights, round.weighing.normaliser, 1.0
        if self._rule.weighs == "parameters":
            share = math.fsum(weights) / normaliser
            keep = 1.0 - share if self._rule.mixes else 0.0
            if not self._sums_parameters:
                keep += share
        return apply(model, self._sum, keep=keep, scale=round.scale, normaliser=normaliser)

    def _added_where_trained(
        self, model: Vector, round: CountedRound, masks: Sequence[Mask | None]
    ) -> tuple[Vector, Mapping[str, float]]:
        """model + s·ψ ⊙ Σ w·m⊙Δ / normaliser, and the coverage of its coordinates."""
        if self._coverage is None:
            self._coverage = Coverage(len(model))
        weights, normaliser = round.weighing.weights, round.weighing.normaliser
        self._coverage.enter(masks, weights, normaliser, self._rule.compensates())
        new = apply_covered(model, self._sum, self._coverage, round.scale)
        return new, self._coverage.shares()

    def _stepped(self, model: Vector, round: CountedRound) -> tuple[Vector, State]:
        """The model after the step of an optimizer, and the optimizer's state."""
        mean = self._sum.total() * (round.scale / round.weighing.normaliser)
        step, state = self._rule.step(mean, round.weighing.state)
        return moved(model, step), state

    def _remembered(self, model: Vector, round: CountedRound) -> Vector:
        """The model that changes by memory; the round's updates become the last ones.

        Raises:
            RunFailed: the weights differ, or are impossible.
        """
        weighing = round.weighing
        weight = weighing.weights[0]
        if set(weighing.weights) != {weight} or not 0 <= weight < math.inf:
            raise RunFailed(
                f"the aggregator {self._rule.kind!r} remembers updates and gave them the weights "
                f"{sorted(set(weighing.weights))[:3]}; expected the same finite number >= 0 for all"
            )
        for update in round.counted:
            update.weight = weight
        fresh, past = round.scale * (weight / weighing.normaliser), round.scale * weighing.past
        assert self._memory is not None
        return self._memory.step(model, round.counted, round.number, fresh=fresh, past=past)

    def _recalled(self, model: Vector, round: CountedRound) -> Vector:
        """The model that changes by what is retained of all clients, each with a weight.

        Raises:
            RunFailed: a client has no weight, or an impossible one.
        """
        weighing = round.weighing
        for client in compress(self._population.clients, self._population.enrolled):
            if not 0 <= (given := weighing.recalled.get(client, math.nan)) < math.inf:
                raise RunFailed(
                    f"the aggregator {self._rule.kind!r} recalls what all devices have sent, and "
                    f"gave the weight {given} to {client}; expected a finite number >= 0 for each"
                )
        for update, weight in zip(round.counted, weighing.weights, strict=True):
            update.weight = weight
        scale = round.scale / weighing.normaliser
        weights = {client: scale * weight for client, weight in weighing.recalled.items()}
        assert self._memory is not None
        order = round.counted, round.number, weights, self._rule.retains()
        return self._memory.recall(model, *order)

    def _combined(self, model: Vector, round: CountedRound) -> Vector:
        """The model after the updates are combined coordinate by coordinate."""
        reads = [update.body.read for update in round.counted if update.weight]
        combine = partial(self._rule.combine, counted=len(round.counted))
        return moved(model, combined(reads, len(model), combine) * round.scale)
