"""FedYogi: Reddi et al., Adaptive Federated Optimization, ICLR 2021, Algorithm 2."""

import numpy as np

from muster.common.seeds import FloatArray
from muster.server.aggregators.optimizing import Adaptive, Share


class FedYogi(Adaptive):
    """m ← β₁·m + (1 − β₁)·Δ, v ← v − (1 − β₂)·Δ²·sign(v − Δ²) and θ ← θ + η·m / (√v + τ)."""

    beta2: Share = 0.99
    """1 − β₂ is the share of Δ² by which v changes in a round."""

    def second_moment(self, v: FloatArray, squares: FloatArray) -> FloatArray:
        return v - (1 - self.beta2) * squares * np.sign(v - squares)
