"""What an aggregator is.

Every rule is θ ← κ·θ + s·Σ w_i·Δ_i over one exact sum that the server keeps: a rule gives the
weights w_i and the normaliser 1/s, and says whether it weighs updates (κ = 1) or parameters
(κ = s·Σ w_i, so that s·Σ w_i·θ_i is what results). The loop that uses it:

    state = rule.initial_state(model)
    for each round:
        weights = [rule.weight(c, state) for c in contributions]     # "on-arrival"
        weights = rule.weigh(contributions, state)                   # "at-close"
        model = κ·model + Σ w_i·Δ_i / rule.normaliser(weights)
        state = rule.next_state(state, model)
    result = rule.result(state, model)

State goes in and comes out as a value, and the server commits it with the round; a rule keeps
nothing else. What more a rule may need (to tell clients something, stale updates, covariates, all
updates at once) will be further one-method protocols in this file.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from muster.common.plugins import Plugin
from muster.common.tensors import Vector

State = Mapping[str, npt.NDArray[Any]]
"""Named arrays of any fixed dtype; empty for a rule without memory."""


class Contribution(NamedTuple):
    """What the server's books say of one update that counts; its vector stays with the server.

    Attributes:
        examples: training examples behind the update; > 0.
        staleness: version it is folded into minus the version it was trained from.
    """

    client: str
    group: str
    examples: int
    staleness: int


class Aggregator(Plugin):
    """A rule that turns a round's updates into the next version; its settings are its fields."""

    weighs: ClassVar[Literal["updates", "parameters"]] = "updates"
    weights: ClassVar[Literal["on-arrival", "at-close"]] = "on-arrival"
    """at-close: the weights need the set of the round, and the server folds when it is fixed."""

    def weight(self, contribution: Contribution, state: State) -> float:
        """The weight of one update, for a rule whose weights are known on arrival; finite, >= 0."""
        raise TypeError(f"{type(self).__name__} gives its weights at close")

    def weigh(self, contributions: Sequence[Contribution], state: State) -> Sequence[float]:
        """The weights of a round's updates, in their order; finite, >= 0."""
        return [self.weight(contribution, state) for contribution in contributions]

    def normaliser(self, weight_sum: float, contributions: Sequence[Contribution]) -> float:
        """What the weighted sum is divided by; a round whose normaliser is 0 is empty."""
        return weight_sum

    def initial_state(self, model: Vector) -> State:
        """The state before the first round."""
        return {}

    def next_state(self, state: State, model: Vector) -> State:
        """The state after a round that made `model`; not called for an empty round."""
        return state

    def result(self, state: State, model: Vector) -> Vector:
        """What the run offers as its model: float32, shape (parameters,)."""
        return np.asarray(model)
