"""The next version of the model, from the updates of a round and the weights of its rule.

This is the arithmetic of a round: it knows neither a clock nor devices, and waits for nothing.
"""

import math
from collections.abc import Sequence

import numpy as np

from muster.common.exact_sum import ExactSum, moved
from muster.common.masks import Mask
from muster.common.tensors import Vector
from muster.server.aggregators import Aggregator
from muster.server.aggregators.coverage import Coverage
from muster.server.aggregators.values import (
    CountedRound,
    CountingUpdate,
    LastUpdates,
    MadeModel,
    Weighing,
)
from muster.server.knowledge.population import Population


class NextModel:
    """Lets a rule make the versions of the model, one after the other.

    Args:
        sum: Σ w·Δ of the updates that count, for rules that add them up.
        population: the devices, for rules that recall what all of them have sent.
        memory: the last updates of all clients; None unless the rule needs them.
        sums_parameters: `sum` has the base versions too, so that it is Σ w·θ.
        counted: the number of entries at the end of the model that training does not move, but
            counts, such as the running statistics of batch normalisation. If the updates are added
            up, they move by the weighted mean of the updates, also where the rule takes a step of
            its own or divides by something else than the sum of the weights.
    """

    def __init__(
        self,
        rule: Aggregator,
        sum: ExactSum,
        population: Population,
        memory: LastUpdates | None = None,
        sums_parameters: bool = False,
        counted: int = 0,
    ) -> None:
        self._rule = rule
        self._sum = sum
        self._population = population
        self._memory = memory
        self._sums_parameters = sums_parameters
        self._counted = counted
        self._coverage: Coverage | None = None  # made if devices train parts of the model

    def make(
        self,
        model: Vector,
        number: int,
        counted: Sequence[CountingUpdate],
        weighing: Weighing,
        scale: float = 1.0,
        masks: Sequence[Mask | None] | None = None,
    ) -> MadeModel:
        """Return the model that follows on `model`.

        Args:
            number: the number of the round.
            weighing: the weights of the rule; the normaliser is not 0.
            scale: the factor of the weighted sum.
            masks: the coordinates that each update has, if devices may train parts of the model.

        Raises:
            Diverged: the sum left its range, or the model has an entry that is not finite.
            RunFailed: the rule gave weights that its base does not allow, or combined the updates
                into an array of another shape.
        """
        if masks is not None and self._coverage is None:
            self._coverage = Coverage(len(model))
        of_round = number, counted, weighing, self._sum, self._population, scale
        round = CountedRound(*of_round, self._sums_parameters, masks, self._coverage, self._memory)
        new, state, estimates = self._rule.make(model, round)
        if self._counted and self._rule.adds_up() and self._rule.weighs == "updates":
            new = self._with_means(model, new, weighing.weights)
        return MadeModel(new, self._rule.next_state(state, new), estimates)

    def _with_means(self, model: Vector, new: Vector, weights: Sequence[float]) -> Vector:
        """`new`, with counted entries that move by the weighted mean of the updates."""
        if not (weight := math.fsum(weights)):
            return new
        first = len(model) - self._counted
        step = self._sum.total()[first : len(model)] / weight
        return np.concatenate([new[:first], moved(model[first:], step)])
