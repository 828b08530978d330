"""The mean of the updates, corrected by what the clients that did not take part sent last.

Jhunjhunwala, Sharma, Nagarkatti, Joshi, FedVARP: Tackling the Variance Due to Partial Client
Participation in Federated Learning, UAI 2022, Algorithm 1. https://arxiv.org/abs/2207.14130
"""

from typing import ClassVar

from muster.common.bounds import Positive
from muster.server.aggregators.bases import Remembering
from muster.server.aggregators.facts import Cohort
from muster.server.aggregators.values import State, Weighing


class FedVarp(Remembering):
    """θ ← θ + η·(1/|S| Σ (Δ_i − y_i) + 1/N Σ y_j), where S are the clients whose updates count, y_j
    is the last update of client j (0 before its first one), and N the number of enrolled devices.
    Every device counts alike, whatever its examples."""

    discounts: ClassVar[bool] = False

    rate: Positive = 1.0
    """Learning rate η of the server."""

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        size, enrolled = len(cohort.contributions), int(cohort.population.enrolled.sum())
        return Weighing([1.0] * size, size / self.rate, state, past=self.rate / enrolled)
