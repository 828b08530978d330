"""The mean of normalised updates: devices may take different numbers of local steps without the
model moving towards those that take more.

Wang, Liu, Liang, Joshi, Poor, Tackling the Objective Inconsistency Problem in Heterogeneous
Federated Optimization, NeurIPS 2020, Algorithm 1 and equation 9.
https://arxiv.org/abs/2007.07481
"""

import math
from collections.abc import Sequence

from muster.common.bounds import Positive
from muster.common.requirements import Requirement
from muster.server.aggregators.contract import Aggregator
from muster.server.aggregators.facts import Contribution, Need
from muster.server.aggregators.values import State


class FedNova(Aggregator):
    """θ ← θ + τ_eff·Σ p_i·Δ_i/‖a_i‖₁ with p_i = n_i/Σ n_j, where n_i is the number of training
    examples of client i. ‖a_i‖₁ is its number of local steps with plain SGD; momentum and a
    proximal term change it (`muster.server.knowledge.local_work`)."""

    effective_steps: Positive | None = None
    """τ_eff. Absent: the mean Σ p_i·‖a_i‖₁ of the round, with which the rule is fedavg if all
    devices take the same number of steps."""

    def weight(self, contribution: Contribution, state: State) -> float:
        return contribution.examples / contribution.effective_steps

    def normaliser(self, weight_sum: float, contributions: Sequence[Contribution]) -> float:
        """Return Σ n_i/τ_eff."""
        examples = math.fsum(c.examples * c.discount for c in contributions)
        if self.effective_steps is not None:
            return examples / self.effective_steps
        steps = math.fsum(c.examples * c.discount * c.effective_steps for c in contributions)
        return examples * examples / steps

    def needs(self) -> frozenset[Need]:
        return frozenset({Need.STEPS})

    def requires(self) -> frozenset[Requirement]:
        return super().requires() | {Requirement.KNOWN_STEPS}
