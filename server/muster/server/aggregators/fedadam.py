"""FedAdam: Reddi et al., Adaptive Federated Optimization, ICLR 2021, Algorithm 2."""

from muster.common.seeds import FloatArray
from muster.server.aggregators.optimizing import Adaptive, Share


class FedAdam(Adaptive):
    """m ← β₁·m + (1 − β₁)·Δ, v ← β₂·v + (1 − β₂)·Δ² and θ ← θ + η·m / (√v + τ)."""

    beta2: Share = 0.99
    """β₂, the share of v that remains in a round."""

    def second_moment(self, v: FloatArray, squares: FloatArray) -> FloatArray:
        return self.beta2 * v + (1 - self.beta2) * squares
