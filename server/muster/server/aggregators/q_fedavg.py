"""Updates weigh more the larger the loss of their device is, so that the model treats devices more
alike.

Li, Sanjabi, Beirami, Smith, Fair Resource Allocation in Federated Learning, ICLR 2020, Algorithm 2.
https://arxiv.org/abs/1905.10497
"""

import math
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from muster.common.bounds import Positive
from muster.common.requirements import Requirement
from muster.server.aggregators.contract import Aggregator
from muster.server.aggregators.facts import Cohort, Contribution, Need
from muster.server.aggregators.values import State, Weighing

_LEAST_LOSS = 1e-10
"""Added to every loss, as in the authors' program (github.com/litian96/fair_flearn), because
F^(q−1) has no value at 0 if q < 1."""


class QFedAvg(Aggregator):
    """θ ← θ + Σ L·F_k^q·Δ_k / Σ h_k with h_k = q·F_k^(q−1)·‖L·Δ_k‖² + L·F_k^q, where F_k is the
    loss of the received model on the data of client k. The devices count alike, whatever number of
    examples they have. With q = 0 the rule is the plain mean."""

    weights: ClassVar[Literal["on-arrival", "at-close"]] = "at-close"

    q: Annotated[float, Field(ge=0, le=1000)] = 1.0
    """q of the objective Σ F_k^(q+1)/(q+1): 0 is the mean loss, and a larger q treats devices more
    alike."""

    smoothness: Positive | None = None
    """L, an estimate of the Lipschitz constant of the gradients. Absent: 1/η with the learning rate
    η of local training, as in the paper."""

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        """Return the weights (F_k/F)^q and the normaliser Σ h_k/(L·F^q), where F is the largest
        loss of the round. Dividing by F^q and by L keeps all numbers in range, and changes nothing
        else."""
        contributions = cohort.contributions
        losses = [_loss(contribution) for contribution in contributions]
        largest = max(losses)
        weights, parts = [], []
        for contribution, loss in zip(contributions, losses, strict=True):
            weight = (loss / largest) ** self.q * contribution.discount
            smoothness = self.smoothness or 1 / contribution.learning_rate
            weights.append(weight)
            # h_k/(L·F_k^q) = 1 + q·L·‖Δ_k‖²/F_k
            parts.append(weight * (1 + self.q * smoothness * contribution.squared_norm / loss))
        estimates = {"initial_loss": {c.client: c.initial_loss for c in contributions}}
        return Weighing(weights, math.fsum(parts), state, estimates)

    def needs(self) -> frozenset[Need]:
        return frozenset({Need.LOSS, Need.NORM})

    def requires(self) -> frozenset[Requirement]:
        rate = set() if self.smoothness else {Requirement.ONE_RATE}
        return super().requires() | {Requirement.LOCAL_TRAINING} | rate


def _loss(contribution: Contribution) -> float:
    return contribution.initial_loss + _LEAST_LOSS
