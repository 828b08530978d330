"""Control variates: every device corrects its local steps by how much its own gradient differs from
the mean of all, so that devices with different data do not drift apart.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, SCAFFOLD: Stochastic Controlled Averaging for
Federated Learning, ICML 2020, Algorithm 1 with option II. https://arxiv.org/abs/1910.06378
"""

from typing import ClassVar

import numpy as np

from muster.common.bounds import Positive
from muster.common.seeds import FloatArray
from muster.common.tensors import Vector
from muster.server.aggregators.bases import Stepping
from muster.server.aggregators.facts import Cohort, Contribution
from muster.server.aggregators.values import State, Weighing


class Scaffold(Stepping):
    """θ ← θ + η/|S| Σ Δ_i and c ← c + 1/N Σ Δc_i over the clients S whose updates count, of N
    enrolled devices. Client i takes K local steps y ← y − η_l·(g_i(y) − c_i + c) with its learning
    rate η_l. Then Δ_i = y − θ, Δc_i = −c − Δ_i/(K·η_l), and c_i ← c_i + Δc_i. c and all c_i begin
    with 0. Every device counts alike, whatever its examples.

    State:
        control: c, float32, shape (parameters,).
        share: |S|/N of the newest version.
    """

    control: ClassVar[bool] = True

    rate: Positive = 1.0
    """Learning rate η of the server."""

    def weight(self, contribution: Contribution, state: State) -> float:
        return 1.0

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        size, enrolled = len(cohort.contributions), int(cohort.population.enrolled.sum())
        return Weighing([1.0] * size, float(size), {**state, "share": np.array(size / enrolled)})

    def initial_state(self, model: Vector) -> State:
        return {"control": np.zeros(len(model), np.float32), "share": np.array(0.0)}

    def control_variate(self, state: State) -> Vector:
        return np.asarray(state["control"])

    def step(self, mean: FloatArray, state: State) -> tuple[FloatArray, State]:
        """See `Stepping.step`; `mean` is that of Δ_i, and after it that of Δc_i."""
        update, change = np.split(mean, 2)
        control = state["control"] + state["share"] * change
        return self.rate * update, {**state, "control": control.astype(np.float32)}
