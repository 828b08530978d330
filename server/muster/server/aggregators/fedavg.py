"""The mean of the updates, weighted by the number of training examples.

McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data,
AISTATS 2017, Algorithm 1. https://arxiv.org/abs/1602.05629
"""

from typing import ClassVar

from muster.server.aggregators.contract import Aggregator
from muster.server.aggregators.facts import Contribution
from muster.server.aggregators.values import State


class FedAvg(Aggregator):
    """θ ← θ + Σ n_i·Δ_i / Σ n_i, with n_i the number of training examples of client i."""

    private: ClassVar[bool] = True
    masks: ClassVar[bool] = True

    def weight(self, contribution: Contribution, state: State) -> float:
        return float(contribution.examples)
