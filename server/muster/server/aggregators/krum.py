"""Krum and Multi-Krum: the updates that are closest to many others.

Blanchard, El Mhamdi, Guerraoui, Stainer, Machine Learning with Adversaries: Byzantine Tolerant
Gradient Descent, NeurIPS 2017, section 4 (the score and Krum) and section 6 (Multi-Krum).
https://papers.nips.cc/paper/6617
"""

from typing import Any, ClassVar

import numpy as np

from muster.common.bounds import DeviceCount
from muster.common.seeds import FloatArray
from muster.server.aggregators.facts import Cohort, Need
from muster.server.aggregators.robust import Chosen, Tolerant


def scores(distances: FloatArray, f: int) -> FloatArray:
    """Return the score of every update: the sum of its squared distances to the n − f − 2 closest
    others, float64, shape (n,).

    If fewer than three more than f updates are left, as in the last steps of Bulyan, the one
    closest other counts.

    Args:
        distances: the squared distances, shape (n, n), with zeros on the diagonal.
    """
    size = len(distances)
    closest = max(size - f - 2, 1)
    # The first is the distance to itself, 0. In ascending order, the bits of the sum do not depend
    # on the order of the updates.
    return np.asarray(np.sort(distances, axis=1)[:, 1 : 1 + closest].sum(axis=1))


def ranked(of_each: FloatArray, clients: list[str]) -> list[int]:
    """Return the positions of the updates from the lowest score to the highest. Equal scores are
    in the order of the clients' names."""
    return sorted(range(len(clients)), key=lambda place: (of_each[place], clients[place]))


class _ByScore(Tolerant):
    """A rule that takes the updates with the lowest scores. A round needs 2f + 3 updates."""

    def needs(self) -> frozenset[Need]:
        return frozenset({Need.DISTANCES})

    def needed(self, f: int) -> int:
        return 2 * f + 3

    def best(self, cohort: Cohort, f: int, count: int) -> tuple[list[int], dict[str, Any]]:
        """Return the positions of the `count` updates with the lowest scores, and the scores."""
        assert cohort.distances is not None  # the rule asked for them
        clients = [contribution.client for contribution in cohort.contributions]
        found = scores(cohort.distances, f)
        by_client = dict(zip(clients, found.tolist(), strict=True))
        return ranked(found, clients)[:count], {"scores": by_client}


class Krum(_ByScore):
    """θ ← θ + Δ_i, of the client i with the lowest score. The score is the sum of the squared
    distances to the n − f − 2 closest others, where n is the number of updates."""

    def choose(self, cohort: Cohort, f: int) -> Chosen:
        [place], estimates = self.best(cohort, f, 1)
        weights = [0.0] * len(cohort.contributions)
        weights[place] = 1.0
        return Chosen(weights, estimates)


class MultiKrum(_ByScore):
    """θ ← θ + 1/m · Σ Δ_i over the m clients with the lowest scores (see `krum`). The staleness
    weight of the mode applies to the mean."""

    discounts: ClassVar[bool] = True

    m: DeviceCount | None = None
    """Number of updates in the mean, at most n − f − 2. Absent, or larger: n − f − 2, the largest
    number for which the scores bound the influence of wrong updates."""

    def choose(self, cohort: Cohort, f: int) -> Chosen:
        size = len(cohort.contributions)
        most = size - f - 2
        places, estimates = self.best(cohort, f, most if self.m is None else min(self.m, most))
        weights = [0.0] * size
        for place in places:
            weights[place] = cohort.contributions[place].discount
        return Chosen(weights, estimates)
