"""Bulyan: Krum selects updates, and coordinate by coordinate the mean of the values around their
median is taken.

El Mhamdi, Guerraoui, Rouault, The Hidden Vulnerability of Distributed Learning in Byzantium,
ICML 2018, section 4, with Krum as the rule A. https://arxiv.org/abs/1802.07927
"""

import numpy as np

from muster.common.seeds import FloatArray
from muster.server.aggregators.facts import Cohort, Need
from muster.server.aggregators.krum import ranked, scores
from muster.server.aggregators.robust import Chosen, Coordinatewise, Tolerant
from muster.server.aggregators.values import Matrix


class Bulyan(Tolerant, Coordinatewise):
    """Of the n updates of a round, n − 2f are selected: again and again the one that Krum takes
    from those that are left. Then θ_j changes by the mean of the n − 4f selected values of
    coordinate j that are closest to their median. A round needs 4f + 3 updates.

    The weights are 1 for the selected updates, and 0 for the others. The median of an even number
    of values is the smaller one of the two in the middle, and of two values at the same distance
    from the median the smaller one comes first: the paper leaves both open.
    """

    def needs(self) -> frozenset[Need]:
        return frozenset({Need.DISTANCES})

    def needed(self, f: int) -> int:
        return 4 * f + 3

    def choose(self, cohort: Cohort, f: int) -> Chosen:
        """Select n − 2f updates, one after the other."""
        assert cohort.distances is not None  # the rule asked for them
        clients = [contribution.client for contribution in cohort.contributions]
        left, weights = list(range(len(clients))), [0.0] * len(clients)
        for _ in range(len(clients) - 2 * f):
            found = scores(cohort.distances[np.ix_(left, left)], f)
            best = left[ranked(found, [clients[place] for place in left])[0]]
            weights[best] = 1.0
            left.remove(best)
        return Chosen(weights, {})

    def combine(self, updates: Matrix, counted: int) -> FloatArray:
        count = len(updates) - 2 * self.tolerated(counted)
        updates.sort(axis=0)
        median = updates[(len(updates) - 1) // 2].astype(np.float64)
        # The order is stable, so of equal distances that of the smaller value comes first.
        order = np.argsort(np.abs(updates - median), axis=0, kind="stable")[:count]
        mean: FloatArray = np.take_along_axis(updates, order, axis=0).mean(axis=0, dtype=np.float64)
        return mean
