"""FedAvg with momentum on the server.

Hsu, Qi, Brown, Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification, 2019, section 4.3. https://arxiv.org/abs/1909.06335
"""

import numpy as np

from muster.common.seeds import FloatArray
from muster.common.tensors import Vector
from muster.server.aggregators.optimizing import Optimizing, Share
from muster.server.aggregators.values import State


class FedAvgM(Optimizing):
    """m ← β·m + Δ and θ ← θ + η·m, where Δ is the mean of the updates, weighted by examples.

    State:
        m: float64, shape (parameters,), initially 0.
    """

    momentum: Share = 0.9
    """β, the share of m that remains in a round. With 0 and η = 1 the rule is FedAvg."""

    def initial_state(self, model: Vector) -> State:
        return {"m": np.zeros(len(model))}

    def step(self, mean: FloatArray, state: State) -> tuple[FloatArray, State]:
        m = self.momentum * state["m"] + mean
        return self.rate * m, {"m": m}
