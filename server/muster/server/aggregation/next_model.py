"""The next version of the model, from the updates of a round and the weights of its rule.

This is the arithmetic of a round: it knows neither a clock nor devices, and waits for nothing.
"""

from collections.abc import Sequence

from muster.common.exact_sum import ExactSum
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
        trained: the coordinates that training may move. The others keep their bits, whatever the
            updates have there, noise adds and arithmetic rounds. None: all may move.
    """

    def __init__(
        self,
        rule: Aggregator,
        sum: ExactSum,
        population: Population,
        memory: LastUpdates | None = None,
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
        if self._trained is not None:
            new = self._trained.replace(model, new)
        return MadeModel(new, self._rule.next_state(state, new), estimates)
