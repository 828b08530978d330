"""The base class of the rules that weigh an update by the inverse of a propensity: the probability
that the update would come.

Morishita, Who Trains Matters: Federated Learning under Enrollment and Participation Selection
Biases, arXiv:2604.26604, section 4. Its equations 11 and 12 divide by N (Horvitz-Thompson); the
default here divides by the sum of the weights (Hájek).
"""

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar, Final, Literal

import numpy as np
from pydantic import Field

from muster.common.requirements import Requirement
from muster.common.seeds import FloatArray, IntArray
from muster.server.aggregators.contract import Aggregator
from muster.server.aggregators.facts import Cohort

UNKNOWN: Final = math.inf
"""An unknown propensity, usually because X is unknown. The update gets the weight 1/∞ = 0."""


class InversePropensity(Aggregator):
    """θ ← θ + Σ w_i·Δ_i / normaliser, with w_i the inverse of a propensity.

    The server must call all enrolled devices, or each with the same probability. Otherwise the
    propensity would not include the server's own selection.
    """

    weights: ClassVar[Literal["on-arrival", "at-close"]] = "at-close"

    normalise: Literal["hajek", "horvitz-thompson"] = "hajek"
    """hajek: divide by the sum of the round's weights; the result varies far less.
    horvitz-thompson: divide by the number of devices that this sum estimates; the result is
    unbiased if the propensities are right."""

    floor: Annotated[float, Field(ge=1e-9, lt=1)] = 1e-3
    """Lower propensities are raised to it; the ledger records how many were."""

    def normaliser_of(self, weights: Sequence[float], estimated: float) -> float:
        """Return the divisor of the weighted sum.

        Args:
            estimated: the expected sum of the weights.
        """
        return math.fsum(weights) if self.normalise == "hajek" else estimated

    def requires(self) -> frozenset[Requirement]:
        of_calls = {Requirement.EQUAL_CALLS, Requirement.CALLS_OF_ABSENT}
        if self.normalise == "horvitz-thompson":
            of_calls.add(Requirement.EVERY_CALL)
        return super().requires() | of_calls


def of_contributions(
    cohort: Cohort, places: IntArray, chances: FloatArray
) -> tuple[FloatArray, list[str]]:
    """Return the propensities of a round's contributions, in their order, and warnings. An unknown
    propensity is infinite.

    Args:
        places: the positions in the population whose propensities are known.
        chances: the propensities of these positions.
    """
    by_place = dict(zip(places.tolist(), chances.tolist(), strict=True))
    clients = [contribution.client for contribution in cohort.contributions]
    own = [by_place.get(place, UNKNOWN) for place in cohort.population.places(clients).tolist()]
    unknown = [client for client, p in zip(clients, own, strict=True) if p == UNKNOWN]
    warnings = [
        f"{len(unknown)} of a round's {len(clients)} updates get weight 0, for example that of "
        f"{client}, because the propensity of its device is unknown"
        for client in unknown[:1]
    ]
    return np.array(own), warnings


def inverse(chances: FloatArray) -> list[float]:
    """Return 1/p of propensities p > 0."""
    weights: list[float] = (1.0 / chances).tolist()
    return weights
