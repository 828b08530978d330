"""The base classes of the rules that treat the mean update as a gradient, and take the step of an
optimizer on the server.

Reddi et al., Adaptive Federated Optimization, ICLR 2021, Algorithm 2. https://arxiv.org/abs/2003.00295
"""

from abc import abstractmethod
from typing import Annotated

import numpy as np
from pydantic import Field

from muster.common.bounds import Positive
from muster.common.seeds import FloatArray
from muster.common.tensors import Vector
from muster.server.aggregators.bases import Stepping
from muster.server.aggregators.fedavg import FedAvg
from muster.server.aggregators.values import State

Share = Annotated[float, Field(ge=0, lt=1)]


class Optimizing(Stepping, FedAvg):
    """A rule whose step follows from the mean of the updates, weighted by examples."""

    rate: Positive = 1.0
    """Learning rate η of the server."""


class Adaptive(Optimizing):
    """m ← β₁·m + (1 − β₁)·Δ and θ ← θ + η·m / (√v + τ), where Δ is the mean update and each rule
    has its own v.

    State:
        m, v: float64, shape (parameters,). Initially m = 0 and v = τ².
    """

    rate: Positive = 0.1

    beta1: Share = 0.9
    """β₁, the share of m that remains in a round."""

    tau: Positive = 1e-3
    """τ, the adaptivity: entries of the mean update that are much smaller take smaller steps."""

    @abstractmethod
    def second_moment(self, v: FloatArray, squares: FloatArray) -> FloatArray:
        """The next v.

        Args:
            squares: the squares of the entries of the mean update.
        """

    def initial_state(self, model: Vector) -> State:
        return {"m": np.zeros(len(model)), "v": np.full(len(model), self.tau**2)}

    def step(self, mean: FloatArray, state: State) -> tuple[FloatArray, State]:
        m = self.beta1 * state["m"] + (1 - self.beta1) * mean
        v = self.second_moment(state["v"], mean**2)
        return self.rate * m / (np.sqrt(v) + self.tau), {"m": m, "v": v}
