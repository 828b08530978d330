"""The mean of the updates of a buffer, in which stale updates count for less.

Nguyen et al., Federated Learning with Buffered Asynchronous Aggregation, AISTATS 2022, Algorithm 1.
https://arxiv.org/abs/2106.06639
"""

from collections.abc import Sequence
from typing import ClassVar

from muster.common.bounds import Positive
from muster.server.aggregators.contract import Aggregator
from muster.server.aggregators.facts import Contribution
from muster.server.aggregators.values import State


class FedBuff(Aggregator):
    """θ ← θ + η/k · Σ s_i·Δ_i over the k updates of a version, where s_i is the mode's staleness
    weight. In contrast to a weighted mean, stale updates make the step shorter."""

    private: ClassVar[bool] = True
    masks: ClassVar[bool] = True

    rate: Positive = 1.0
    """Learning rate η of the server."""

    def weight(self, contribution: Contribution, state: State) -> float:
        return 1.0

    def normaliser(self, weight_sum: float, contributions: Sequence[Contribution]) -> float:
        return len(contributions) / self.rate
