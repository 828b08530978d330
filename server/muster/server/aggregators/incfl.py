"""Weights that favour the clients that the model nearly satisfies.

Cho, Jhunjhunwala, Li, Smith, Joshi, To Federate or Not To Federate: Incentivizing Client
Participation in Federated Learning, 2022, Algorithm 1 (IncFL). https://arxiv.org/abs/2205.14840
"""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from muster.common.seeds import FloatArray
from muster.common.tensors import Vector
from muster.server.aggregators.facts import Cohort
from muster.server.aggregators.retaining import DeviceWeights, Retaining, losses_of
from muster.server.aggregators.values import State


class IncFl(Retaining):
    """The weights α_k = q_k / (Σ q_j + ε) with q_k = σ(x_k)·(1 − σ(x_k)), x_k = F_k(θ) − ρ_k and
    the sigmoid function σ. F_k(θ) is the loss of the received model, and ρ_k that of a purely local
    model, both on the validation examples of device k. q_k is the largest where both are equal.

    ρ_k is the loss of the device's own model after its first round, in which it trains from the
    initial model alone. Until a device has reported it, x_k counts as 0. A device that reports
    nothing keeps its x_k.

    State:
        local: ρ, float64, shape (enrolled,); NaN until a device has reported it.
        excess: x, in the same shape.
    """

    epsilon: Annotated[float, Field(gt=0, le=1)] = 1e-3
    """ε, which keeps the divisor above 0."""

    def device_weights(self, clients: Sequence[str], cohort: Cohort, state: State) -> DeviceWeights:
        """See `Retaining.device_weights`."""
        received, own = losses_of(clients, cohort.valuations)
        local, excess = np.asarray(state["local"]), np.asarray(state["excess"])
        if not len(local):
            local, excess = np.full(len(clients), np.nan), np.zeros(len(clients))
        local = np.where(np.isnan(local), own, local)
        excess = np.where(np.isnan(received - local), excess, received - local)
        appeal = _slope_of_sigmoid(excess)
        alpha = appeal / (appeal.sum() + self.epsilon)
        known = {c: loss for c, loss in zip(clients, local.tolist(), strict=True) if loss == loss}
        estimates = {
            "local_loss": known,
            "excess_loss": dict(zip(clients, excess.tolist(), strict=True)),
        }
        return DeviceWeights(alpha, {"local": local, "excess": excess}, estimates)

    def initial_state(self, model: Vector) -> State:
        return {"alpha": np.zeros(0), "local": np.zeros(0), "excess": np.zeros(0)}


def _slope_of_sigmoid(values: FloatArray) -> FloatArray:
    """σ(x)·(1 − σ(x)) for any x, without overflow."""
    small = np.exp(-np.abs(values))
    return np.asarray(small / (1 + small) ** 2)
