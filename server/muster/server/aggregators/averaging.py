"""The base class of the rules whose convergence theorem is about the average of the iterates."""

from typing import Literal

import numpy as np

from muster.common.tensors import Vector
from muster.server.aggregators.contract import Aggregator
from muster.server.aggregators.values import State


class Averaging(Aggregator):
    """A rule whose state is the sum of the global iterates, so that it can offer their average.

    State:
        sum: the sum of the versions made so far, float64, shape (parameters,). The initial model
            is not in it.
        iterates: how many these are, int64, shape ().
        With `offer = "last"` the state is empty.
    """

    offer: Literal["average", "last"] = "average"
    """The model that the run offers: the average of the global iterates, or the last iterate."""

    def initial_state(self, model: Vector) -> State:
        if self.offer == "last":
            return {}
        return {"sum": np.zeros(len(model)), "iterates": np.zeros((), np.int64)}

    def next_state(self, state: State, model: Vector) -> State:
        if self.offer == "last":
            return state
        return {**state, "sum": state["sum"] + model, "iterates": state["iterates"] + 1}

    def result(self, state: State, model: Vector) -> Vector:
        if self.offer == "last" or not state["iterates"]:
            return model
        return np.asarray(state["sum"] / state["iterates"], dtype=np.float32)
