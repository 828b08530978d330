"""Plain mean of the parameters of whoever came, and the average of the iterates as the answer.

Agnostic FedAvg: no weights, no knowledge of who takes part. It optimises Σ p_i·f_i, where p_i is
what participation makes of each client, and its guarantee is for the averaged iterate.
"""

from typing import ClassVar, Literal

import numpy as np

from muster.common.tensors import Vector
from muster.server.aggregators.contract import Aggregator, Contribution, State


class Agnostic(Aggregator):
    """θ ← 1/|S| Σ θ_i."""

    weighs: ClassVar[Literal["updates", "parameters"]] = "parameters"

    offer: Literal["average", "last"] = "average"
    """What the run offers as its model: the average of the global iterates, or the last of them."""

    def weight(self, contribution: Contribution, state: State) -> float:
        return 1.0

    def initial_state(self, model: Vector) -> State:
        if self.offer == "last":
            return {}
        return {"sum": np.zeros(len(model)), "iterates": np.zeros((), np.int64)}

    def next_state(self, state: State, model: Vector) -> State:
        if self.offer == "last":
            return state
        return {"sum": state["sum"] + model, "iterates": state["iterates"] + 1}

    def result(self, state: State, model: Vector) -> Vector:
        if self.offer == "last" or not state["iterates"]:
            return model
        return np.asarray(state["sum"] / state["iterates"], dtype=np.float32)
