"""What rules share whose guarantee is for the average of the iterates."""

from typing import Literal

import numpy as np

from muster.common.tensors import Vector
from muster.server.aggregators.contract import Aggregator, State


class Averaging(Aggregator):
    """Keeps the sum of the global iterates."""

    offer: Literal["average", "last"] = "average"
    """What the run offers as its model: the average of the global iterates, or the last of them."""

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
