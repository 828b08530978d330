"""FedPLT: the mean of partial updates, coordinate by coordinate, over the clients that trained it.

Dabaja and El-Azouzi, Convergence Analysis of Federated Learning with Partial Parameter Training,
section 1.3 (partial update rule). The text defines ψ over all clients. Here the sums run over the
updates that count in the round, because only then the result is a weighted mean.
"""

from typing import ClassVar

from muster.server.aggregators.contract import Aggregator
from muster.server.aggregators.facts import Contribution
from muster.server.aggregators.values import State


class FedPlt(Aggregator):
    """θ ← θ + ψ ⊙ Σ c_k·m_k⊙Δ_k, with c_k = n_k / Σ n_j and ψ = Σ n_j / Σ n_k·m_k, entry by entry.

    m_k is the mask of client k and n_k its number of training examples. So an entry of the step is
    the mean of the updates of the clients that trained it, weighted by their examples. An entry
    that nobody trained stays as it is. Without masks the rule is fedavg.
    """

    masks: ClassVar[bool] = True

    psi: bool = True
    """Whether to multiply by ψ. With false, an entry that few devices train moves less, as if its
    learning rate were multiplied by the share of the examples behind it."""

    def compensates(self) -> bool:
        return self.psi

    def weight(self, contribution: Contribution, state: State) -> float:
        return float(contribution.examples)
