"""Importance weights that correct for correlated participation. They depend on how often each
client took part, and on how many others took part in the same rounds.

Harrak et al., Bias Mitigation for Federated Learning with Spatially Correlated Participation, 2025,
hal-05265910, section IV, with equation 6 (c_m) and equation 11 (its estimator). A plain mean over
the set S of clients that take part gives client m the weight c_m = E[1{m in S}/|S|]. The factor
1/(M·c_m) turns it into 1/M.
"""

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from muster.server.aggregators.contract import Aggregator
from muster.server.aggregators.facts import Cohort, Need
from muster.server.aggregators.values import State, Weighing


class Importance(Aggregator):
    """θ ← θ + 1/|S| Σ Δ_m/(M·ĉ_m), with ĉ_m the mean of 1{m in S}/|S| over all rounds so far.

    M is the number of enrolled devices. An empty round adds 0 to every ĉ's sum, but it counts as a
    round.
    """

    masks: ClassVar[bool] = True

    weights: ClassVar[Literal["on-arrival", "at-close"]] = "at-close"
    discounts: ClassVar[bool] = False

    shares: Literal["estimated", "exact"] = "estimated"
    """estimated: ĉ, from all rounds up to the current one. exact: the true c, if the emulator can
    compute it for the scenario."""

    delta: Annotated[float, Field(ge=1e-9, le=1)] = 0.01
    """δ: a lower ĉ is raised to it, so that no weight exceeds 1/(M·δ)."""

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        """Return the weights 1/(M·ĉ_m) and the normaliser |S|.

        The state is `sums`: the sum of 1{m in S}/|S| over the rounds for every device of the
        population, float64, shape (N,).
        """
        population, size = cohort.population, len(cohort.contributions)
        enrolled = int(population.enrolled.sum())
        places = population.places([c.client for c in cohort.contributions])
        sums = np.array(state["sums"] if "sums" in state else np.zeros(population.size))
        sums[places] += 1 / size
        if self.shares == "exact":
            assert population.oracle.shares is not None  # the rule asked for it
            shares = np.array(population.oracle.shares)
        else:
            shares = sums / cohort.round
        weights = 1 / (enrolled * np.maximum(shares[places], self.delta))
        capped = places[shares[places] < self.delta]
        estimates: dict[str, Any] = {
            "shares": {
                population.clients[int(i)]: float(shares[i])
                for i in np.flatnonzero(population.enrolled)
            },
            "floor": self.delta,
            "clipped_shares": len(capped),
        }
        warnings = [
            f"{len(capped)} of a round's {size} devices take part so rarely, for example "
            f"{population.clients[place]}, that delta = {self.delta:g} caps their weights: they "
            f"count for less than 1/{enrolled}"
            for place in capped[:1]
        ]
        return Weighing(weights.tolist(), float(size), {"sums": sums}, estimates, warnings)

    def needs(self) -> frozenset[Need]:
        return frozenset({Need.SHARES} if self.shares == "exact" else ())
