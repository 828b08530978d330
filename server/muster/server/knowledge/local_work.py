"""What an aggregator may know of local training, and how many steps an update counts for.

With plain SGD, an update is Δ = −η Σ_k g_k over the gradients g_k of its local steps. Momentum and
a proximal term weigh the gradients: Δ = −η Σ_k a_k·g_k with a vector a >= 0.

Wang, Liu, Liang, Joshi, Poor, Tackling the Objective Inconsistency Problem in Heterogeneous
Federated Optimization, NeurIPS 2020, section 3 (equation 4 and the examples of a_i after it).
https://arxiv.org/abs/2007.07481
"""

import math

from pydantic import Field

from muster.common.config import Section
from muster.common.schedules import Rate, rate_at


class LocalWork(Section):
    """The local training of a scenario, as far as aggregators need it."""

    learning_rate: Rate = 0.1
    """η, a number or a schedule over rounds."""

    momentum: float = 0.0
    """ρ of heavy-ball momentum, v ← ρ·v + g and θ ← θ − η·v, with v = 0 at the first step."""

    proximal_mu: float = 0.0
    """μ of the term μ/2 ‖θ − received‖²."""

    other: list[str] = Field(default_factory=list)
    """The settings of the scenario under which an update is not −η Σ a_k·g_k with a known vector
    a."""

    def learning_rate_at(self, round: int) -> float:
        """η of the devices that are called in `round`."""
        return rate_at(self.learning_rate, round)

    def effective_steps(self, steps: int, round: int) -> float:
        """‖a‖₁ of an update with so many local steps: Σ_k a_k, which is `steps` with plain SGD.

        momentum: a_k = (1 − ρ^(τ−k)) / (1 − ρ) for k = 0 … τ − 1.
        proximal term: a_k = (1 − η·μ)^(τ−1−k).

        Args:
            round: in which the device was called.
        """
        rho, alpha = self.momentum, self.proximal_mu * self.learning_rate_at(round)
        if rho:
            return (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)
        if alpha:
            return -math.expm1(steps * math.log1p(-alpha)) / alpha
        return float(steps)
