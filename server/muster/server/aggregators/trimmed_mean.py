"""The mean of the updates in each coordinate, without the smallest and the largest values.

Yin, Chen, Ramchandran, Bartlett, Byzantine-Robust Distributed Learning: Towards Optimal Statistical
Rates, ICML 2018, Definition 2 and Algorithm 1 (option II). https://arxiv.org/abs/1803.01498
"""

import numpy as np

from muster.common.seeds import FloatArray
from muster.server.aggregators.facts import Cohort
from muster.server.aggregators.robust import Chosen, Coordinatewise, Tolerant
from muster.server.aggregators.values import Matrix


class TrimmedMean(Tolerant, Coordinatewise):
    """θ_j ← θ_j + mean of the Δ_ij over the clients i, without the f smallest and the f largest of
    them, for each coordinate j. `byzantine_ratio` is the β of the paper. A round needs 2f + 1
    updates."""

    def needed(self, f: int) -> int:
        return 2 * f + 1

    def choose(self, cohort: Cohort, f: int) -> Chosen:
        """Choose all updates: which values are trimmed differs between coordinates."""
        return Chosen([1.0] * len(cohort.contributions), {})

    def combine(self, updates: Matrix, counted: int) -> FloatArray:
        f = self.tolerated(counted)
        # Sorted, so that the bits of the sum do not depend on the order of the updates.
        updates.sort(axis=0)
        kept: FloatArray = updates[f : counted - f].mean(axis=0, dtype=np.float64)
        return kept
