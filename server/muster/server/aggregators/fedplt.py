"""FedPLT: the mean of partial updates, coordinate by coordinate, over the clients that trained it.

Dabaja and El-Azouzi, Convergence Analysis of Federated Learning with Partial Parameter Training,
section 1.3 (partial update rule). The text defines ψ over all clients. Here the sums run over the
updates that count in the round, because only then the result is a weighted mean.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from muster.server.aggregators.contract import Aggregator
from muster.server.aggregators.facts import Contribution
from muster.server.aggregators.values import State


class FedPlt(Aggregator):
    """θ ← θ + s·ψ ⊙ Σ c_k·m_k⊙Δ_k, with c_k = n_k / Σ n_j and ψ = Σ n_j / Σ n_k·m_k, entry by
    entry.

    m_k is the mask of client k and n_k its number of training examples. So an entry of the step is
    the mean of the updates of the clients that trained it, weighted by their examples. An entry
    that nobody trained stays as it is. Without masks the rule is fedavg.
    """

    masks: ClassVar[bool] = True

    psi: bool = True
    """Whether to multiply by ψ. With false, an entry that few devices train moves less, as if its
    learning rate were multiplied by the share of the examples behind it."""

    rate: Annotated[float, Field(gt=0, le=10)] = 1.0
    """s, the learning rate of the server; the paper has 1. Devices that train different parts move
    them at the same time, each as if the others rested, so that together they may go too far. A
    rate below 1 damps this. A rate of at most the share of the model that a device trains cannot
    overshoot if devices have alike data and a convex loss."""

    def compensates(self) -> bool:
        return self.psi

    def weight(self, contribution: Contribution, state: State) -> float:
        return float(contribution.examples)

    def normaliser(self, weight_sum: float, contributions: Sequence[Contribution]) -> float:
        return weight_sum / self.rate
