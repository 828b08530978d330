"""Weights that follow the losses of clients by online learning, for fairness between silos.

Hahn, Kim, Lee, Pursuing Overall Welfare in Federated Learning through Sequential Decision Making,
ICML 2024, eq. 4, 8 and Algorithm 2 (AAggFF-S). https://arxiv.org/abs/2405.20821
Online Newton step: Agarwal, Hazan, Kale, Schapire, Algorithms for portfolio management based on the
Newton method, ICML 2006.
"""

from collections.abc import Callable, Mapping, Sequence
from math import erf
from types import MappingProxyType
from typing import Literal

import numpy as np

from muster.common.seeds import FloatArray
from muster.common.tensors import Vector
from muster.server.aggregators.facts import Cohort
from muster.server.aggregators.retaining import DeviceWeights, Retaining, equal_weights, losses_of
from muster.server.aggregators.values import State
from muster.server.knowledge.solvers import least_quadratic

_RESPONSES: Mapping[str, Callable[[FloatArray], FloatArray]] = MappingProxyType(
    {
        "normal": lambda x: np.array([(1 + erf((v - 1) / 2**0.5)) / 2 for v in x]),
        "weibull": lambda x: np.asarray(1 - np.exp(-(x**2))),
        "exponential": lambda x: np.asarray(1 - np.exp(-x)),
    }
)
"""Distribution functions of L_k / mean L: normal with mean 1 and deviation 1, Weibull with shape 2
and scale 1, and exponential with rate 1."""


class AaggffS(Retaining):
    """The weights p of an online Newton step over the simplex. L_k is the loss of the received
    model on the validation examples of device k, and r_k = cdf(L_k / mean L)/N its response. The
    loss of weights p is −ln(1 + ⟨p, r⟩), with the gradient g = −r/(1 + ⟨p, r⟩). The next weights
    minimise

        Σ_τ [⟨g_τ, p⟩ + β/2·⟨g_τ, p − p_τ⟩²] + α/2·‖p‖²

    over all rounds τ so far, with β = N/4 and α = 4 (those of the paper for responses of at most
    1/N). They are the weights of the round's version. A device that reports no loss keeps its last
    one; before its first one it counts as the mean.

    State:
        losses: L, float64, shape (enrolled,); NaN before the first report.
        slope: Σ g, in the same shape.
        curvature: Σ g·gᵀ, shape (enrolled, enrolled).
        pull: Σ g·⟨g, p⟩, shape (enrolled,).
    """

    response: Literal["normal", "weibull", "exponential"] = "normal"
    """cdf, the increasing function that turns relative losses into responses. The code of the paper
    has normal for its experiments across silos."""

    def device_weights(self, clients: Sequence[str], cohort: Cohort, state: State) -> DeviceWeights:
        """See `Retaining.device_weights`."""
        count = len(clients)
        if not len(state["losses"]):
            state = {
                "alpha": equal_weights(count),
                "losses": np.full(count, np.nan),
                "slope": np.zeros(count),
                "curvature": np.zeros((count, count)),
                "pull": np.zeros(count),
            }
        weights = np.asarray(state["alpha"])
        reported, _ = losses_of(clients, cohort.valuations)
        losses = np.where(np.isnan(reported), state["losses"], reported)
        learned = {name: np.asarray(state[name]) for name in ("slope", "curvature", "pull")}
        estimates = {}
        if not np.isnan(losses).all():
            filled = np.where(np.isnan(losses), np.nanmean(losses), losses)
            responses = self._responses(filled)
            gradient = -responses / (1 + weights @ responses)
            learned["slope"] = learned["slope"] + gradient
            learned["curvature"] = learned["curvature"] + np.outer(gradient, gradient)
            learned["pull"] = learned["pull"] + gradient * (gradient @ weights)
            bend = count / 4
            quadratic = 4 * np.eye(count) + bend * learned["curvature"]
            weights = least_quadratic(quadratic, learned["slope"] - bend * learned["pull"], weights)
            estimates["responses"] = dict(zip(clients, responses.tolist(), strict=True))
        return DeviceWeights(weights, {"losses": losses, **learned}, estimates)

    def _responses(self, losses: FloatArray) -> FloatArray:
        """r, shape (N,), each at most 1/N."""
        mean = losses.mean()
        relative = losses / mean if mean > 0 else np.ones_like(losses)
        return _RESPONSES[self.response](relative) / len(losses)

    def initial_state(self, model: Vector) -> State:
        names = "alpha", "losses", "slope", "curvature", "pull"
        return {name: np.zeros(0) for name in names}
