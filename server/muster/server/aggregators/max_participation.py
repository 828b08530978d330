"""Weights that keep as many rational devices as any weights can. The rule is muster's own.

If client k stays with the weights of an interval [lo_k, up_k], some weights keep a set of clients
only if its lo_k have a sum of at most 1. So taking clients by ascending lo_k while their sum is at
most 1 keeps the most, which no other rule can exceed: not problem 7 of FedUCA either.
"""

from collections.abc import Sequence

import numpy as np

from muster.common.seeds import FloatArray
from muster.server.aggregators.facts import Cohort
from muster.server.aggregators.retaining import DeviceWeights, UtilityConstrained
from muster.server.knowledge.utilities import Utilities, keeping_most, most_satisfied


class MaxParticipation(UtilityConstrained):
    """θ ← θ + Σ α_k·D_k like `feduca`, with weights that keep the largest number of devices by the
    utilities that they reported. Of these weights α is the nearest to equal ones: a device that can
    be kept has a weight at which it stays, the rest goes to all alike as far as that allows."""

    def solved(
        self, clients: Sequence[str], cohort: Cohort, utilities: Utilities, old: FloatArray
    ) -> DeviceWeights:
        """See `keeping_most`."""
        alpha = keeping_most(utilities)
        missing = np.maximum(utilities.threshold - utilities.at(alpha), 0.0)
        estimates = {
            "attainable": most_satisfied(utilities),
            "missing_utility": dict(zip(clients, missing.tolist(), strict=True)),
        }
        return DeviceWeights(alpha, {}, estimates)
