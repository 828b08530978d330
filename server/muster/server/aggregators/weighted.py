"""FedAvg with weights p_i that say how often each client is selected: as it is usually written
(`Weighted`), and divided by the sum of the weights (`WeightedNormalised`).

Convergence of Agnostic Federated Averaging, equation 10 (after Li et al., On the Convergence of
FedAvg on Non-IID Data, ICLR 2020). Equation 10 is correct only if selection is uniform, and then it
is the plain mean.
"""

import math
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator

from muster.common.requirements import Requirement
from muster.common.seeds import FloatArray
from muster.server.aggregators.averaging import Averaging
from muster.server.aggregators.facts import Cohort, Need
from muster.server.aggregators.values import State, Weighing
from muster.server.knowledge.population import Population

_ROUNDING = 1e-6


class WeightedNormalised(Averaging):
    """θ ← Σ p_i·θ_i / Σ p_i, summed over the set S of clients whose updates count in the round."""

    weighs: ClassVar[Literal["updates", "parameters"]] = "parameters"
    weights: ClassVar[Literal["on-arrival", "at-close"]] = "at-close"
    discounts: ClassVar[bool] = False

    p: list[Annotated[float, Field(ge=0, le=1)]] | None = None
    """p_i of every device, in the order of the population; they sum to 1. Absent: the exact
    p_i = E[1{i in S}/|S|] over the rounds in which S is not empty, if the emulator can compute it
    for the scenario."""

    @field_validator("p")
    @classmethod
    def _sums_to_one(cls, p: list[float] | None) -> list[float] | None:
        if p is not None and abs(math.fsum(p) - 1) > _ROUNDING:
            raise ValueError(
                f"p sums to {math.fsum(p):.6g}, expected 1: p_i is the expected share of device i "
                f"in the mean over the devices that take part. The probabilities of being among M "
                f"selected devices sum to M; divide them by M"
            )
        return p

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        """Return the weights p_i and the normaliser Σ p_i (|S|/N in `Weighted`)."""
        places = cohort.population.places([c.client for c in cohort.contributions])
        weights: list[float] = self._shares(cohort.population)[places].tolist()
        return Weighing(weights, self._divisor(weights, cohort), state)

    def _shares(self, population: Population) -> FloatArray:
        if self.p is not None:
            return np.array(self.p)
        assert population.oracle.shares is not None  # the rule asked for it
        shares = np.array(population.oracle.shares)
        shares /= shares.sum()  # the c_i sum to the probability that a round is not empty
        return shares

    def _divisor(self, weights: list[float], cohort: Cohort) -> float:
        return math.fsum(weights)

    def needs(self) -> frozenset[Need]:
        return frozenset({Need.SHARES} if self.p is None else ())

    def objections(self, population: Population) -> Iterator[str]:
        if self.p is not None and len(self.p) != population.size:
            yield f"p: found {len(self.p)} numbers, expected one for each device: {population.size}"


class Weighted(WeightedNormalised):
    """θ ← N/|S| Σ p_i·θ_i, summed over the set S of clients whose updates count: equation 10 as
    printed.

    N is the number of enrolled devices, since only they can take part. The factors N·p_i/|S| sum to
    1 on average only if every enrolled device has p_i = 1/N. Otherwise a round multiplies the
    parameters by about N Σ p², and they grow without bound unless local training is projected onto
    a ball.
    """

    def _divisor(self, weights: list[float], cohort: Cohort) -> float:
        return len(weights) / int(cohort.population.enrolled.sum())

    def requires(self) -> frozenset[Requirement]:
        return super().requires() | {Requirement.PROJECTION}
