"""FedAdagrad: Reddi et al., Adaptive Federated Optimization, ICLR 2021, Algorithm 2."""

from muster.common.seeds import FloatArray
from muster.server.aggregators.optimizing import Adaptive, Share


class FedAdagrad(Adaptive):
    """m ← β₁·m + (1 − β₁)·Δ, v ← v + Δ² and θ ← θ + η·m / (√v + τ)."""

    beta1: Share = 0.0
    """β₁, the share of m that remains in a round."""

    def second_moment(self, v: FloatArray, squares: FloatArray) -> FloatArray:
        return v + squares
