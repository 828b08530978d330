"""What rules share that weigh an update by the inverse of how likely it was to come."""

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Final, Literal

import numpy as np
from pydantic import Field

from muster.common.seeds import FloatArray, IntArray
from muster.server.aggregators.contract import Aggregator, Cohort, Conditions

UNKNOWN: Final = math.inf
"""A propensity that is not known, as a rule since X is not: the update weighs 1/∞, nothing."""


class InversePropensity(Aggregator):
    """θ ← θ + Σ w_i·Δ_i / normaliser, w_i one over a propensity.

    Every enrolled device has to be called, or all with the same chance: otherwise the propensity
    would lack the server's own choice.
    """

    weights: ClassVar[Literal["on-arrival", "at-close"]] = "at-close"

    normalise: Literal["hajek", "horvitz-thompson"] = "hajek"
    """hajek: divide by the sum of the round's weights, which varies far less. horvitz-thompson: by
    the number that the weights estimate; exact on average."""

    floor: Annotated[float, Field(ge=1e-9, lt=1)] = 1e-3
    """Propensities below it count as this; how many did is in the ledger."""

    def normaliser_of(self, weights: Sequence[float], estimated: float) -> float:
        """What the sum is divided by.

        Args:
            estimated: what the sum of the weights is on average.
        """
        return math.fsum(weights) if self.normalise == "hajek" else estimated

    def refusals(self, conditions: Conditions) -> Iterator[str]:
        yield from super().refusals(conditions)
        if conditions.selection == "all":
            return
        if conditions.selection != "uniform":
            yield (
                f"it weighs by how likely devices take part when they are called, and with "
                f"server.selection = {conditions.selection!r} some are called more often; expected "
                f"'all' or 'uniform'"
            )
        elif self.normalise == "horvitz-thompson":
            yield (
                "normalise = 'horvitz-thompson' needs everybody called, and server.selection is "
                "'uniform'; expected 'all', or normalise = 'hajek'"
            )
        elif not conditions.lockstep:
            yield (
                "server.selection = 'uniform' needs clock.kind = 'rounds' here: elsewhere absent "
                "devices are never called, and their rows would outnumber those of others"
            )


def of_contributions(
    cohort: Cohort, places: IntArray, chances: FloatArray
) -> tuple[FloatArray, list[str]]:
    """The propensities of a round's contributions, and what people should be told.

    Args:
        places: positions in the population whose propensities are known.
        chances: these.
    """
    by_place = dict(zip(places.tolist(), chances.tolist(), strict=True))
    clients = [contribution.client for contribution in cohort.contributions]
    found = [by_place.get(place, UNKNOWN) for place in cohort.population.places(clients).tolist()]
    unknown = [client for client, p in zip(clients, found, strict=True) if p == UNKNOWN]
    warnings = [
        f"{len(unknown)} of a round's {len(clients)} updates weigh nothing, for example that of "
        f"{client}: it has told nothing of how likely it was to come"
        for client in unknown[:1]
    ]
    return np.array(found), warnings


def inverse(chances: FloatArray) -> list[float]:
    """1/p of propensities > 0."""
    weights: list[float] = (1.0 / chances).tolist()
    return weights
