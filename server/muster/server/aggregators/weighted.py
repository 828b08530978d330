"""FedAvg weighted by how often clients are selected, as it is usually written, and normalised.

Convergence of Agnostic Federated Averaging, equation 10 (after Li et al., On the Convergence of
FedAvg on Non-IID Data, ICLR 2020): right for uniform selection only, where it is the plain mean.
"""

import math
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator

from muster.common.seeds import FloatArray
from muster.server.aggregators.averaging import Averaging
from muster.server.aggregators.contract import Cohort, Conditions, Need, State, Weighing
from muster.server.knowledge.population import Population

_ROUNDING = 1e-6


class WeightedNormalised(Averaging):
    """θ ← Σ p_i·θ_i / Σ p_i, over whoever came."""

    weighs: ClassVar[Literal["updates", "parameters"]] = "parameters"
    weights: ClassVar[Literal["on-arrival", "at-close"]] = "at-close"

    p: list[Annotated[float, Field(ge=0, le=1)]] | None = None
    """p_i of every device of the population, in its order; they sum to 1. Absent: the exact
    p_i = E[1{i in S}/|S|], S not empty, which the emulator works out where it can."""

    @field_validator("p")
    @classmethod
    def _sums_to_one(cls, p: list[float] | None) -> list[float] | None:
        if p is not None and abs(math.fsum(p) - 1) > _ROUNDING:
            raise ValueError(
                f"p sums to {math.fsum(p):.6g}, expected 1: the part of each device in a mean over "
                f"whoever comes. Probabilities to be among M that are selected sum to M; divide "
                f"them by M"
            )
        return p

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        places = cohort.population.places([c.client for c in cohort.contributions])
        weights: list[float] = self._shares(cohort.population)[places].tolist()
        return Weighing(weights, self._divisor(weights, cohort), state)

    def _shares(self, population: Population) -> FloatArray:
        if self.p is not None:
            return np.array(self.p)
        assert population.oracle.shares is not None  # the rule asked for it
        shares = np.array(population.oracle.shares)
        shares /= shares.sum()  # c sums to the probability that somebody comes
        return shares

    def _divisor(self, weights: list[float], cohort: Cohort) -> float:
        return math.fsum(weights)

    def needs(self) -> frozenset[Need]:
        return frozenset({Need.SHARES} if self.p is None else ())

    def objections(self, population: Population) -> Iterator[str]:
        if self.p is not None and len(self.p) != population.size:
            yield f"p: found {len(self.p)} numbers, expected one for each device: {population.size}"


class Weighted(WeightedNormalised):
    """θ ← N/|S| Σ p_i·θ_i, over whoever came: equation 10 as it stands.

    N counts the enrolled, who alone can come. The factors sum to 1 on average only where all their
    p_i are 1/N. Elsewhere a round multiplies the parameters by about N Σ p², and nothing but a ball
    in which training stays holds them.
    """

    def _divisor(self, weights: list[float], cohort: Cohort) -> float:
        return len(weights) / int(cohort.population.enrolled.sum())

    def refusals(self, conditions: Conditions) -> Iterator[str]:
        yield from super().refusals(conditions)
        if not conditions.projected:
            yield (
                "weighted (equation 10) multiplies the parameters by N/|S|·Σ p, whose mean is "
                "above 1, and diverges by itself; set training.projection_radius, or take "
                "'weighted-normalised'"
            )
