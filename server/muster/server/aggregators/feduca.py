"""Weights that keep rational clients in the federation: they solve a problem whose constraints are
the clients' utilities.

Yashwanth, Singh, Nayak, Bulusu, Chakraborty, Federated Learning by Utility-Constrained Stochastic
Aggregation for Improving Rational Participation, 2026, Algorithms 1 and 2, problem 7.
https://arxiv.org/abs/2605.18020
"""

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from muster.common.seeds import FloatArray, stream
from muster.common.tensors import sum_of_squares
from muster.server.aggregators.facts import Cohort
from muster.server.aggregators.retaining import DeviceWeights, UtilityConstrained, has_curve
from muster.server.knowledge.solvers import cvxpy_module
from muster.server.knowledge.strategies import (
    REGULARIZATION,
    Strategies,
    StrategyProblem,
    solve,
    weight_error,
)
from muster.server.knowledge.utilities import Utilities, for_one, most_satisfied, stays


class FedUca(UtilityConstrained):
    """θ ← θ + Σ α_k·D_k over all enrolled devices, where D_k is the last update of device k, and 0
    before the first one. α = Rᵀs with s ~ Dirichlet(δ), and R solves problem 7 for the utilities
    that the devices reported. Devices are told their α."""

    strategies: Annotated[int, Field(ge=1, le=100)] = 5
    """n_s, the number of strategies that are mixed; at most the number of devices."""

    concentration: Annotated[float, Field(ge=1e-3, le=1e6)] = 1.0
    """δ of the Dirichlet distribution from which the mixture s is drawn in each round."""

    slack: Annotated[float, Field(ge=0, le=1)] = 0.0
    """ε, by how much utilities must exceed thresholds."""

    regularization: Annotated[float, Field(ge=0, le=1)] = REGULARIZATION
    """λ of ½λ‖R − 1/N‖², which is added to the objective of problem 7. With λ = 0 the problem is
    that of the paper, which has many solutions: the solver then decides which of them is taken."""

    def solved(
        self, clients: Sequence[str], cohort: Cohort, utilities: Utilities, old: FloatArray
    ) -> DeviceWeights:
        """Solve problem 7. The old weights stay if no solver succeeds."""
        count = min(self.strategies, len(clients))
        draws = stream(cohort.seed, "aggregation", cohort.round)
        mixture = _mixture(np.full(count, self.concentration), draws)
        problem = StrategyProblem(utilities, mixture, self.slack, self.regularization)
        found = solve(problem)
        estimates: dict[str, Any] = {
            "mixture": {str(number): share for number, share in enumerate(mixture.tolist())},
            "attainable": most_satisfied(utilities),
        }
        failed = found.fallen_back if isinstance(found, Strategies) else found
        estimates["solver_failures"] = len(failed)
        # Without numbers, so that each is said once in a run; the ledger has them by round.
        names = dict.fromkeys(sentence.partition(":")[0] for sentence in failed)
        warnings = [f"{name} failed to solve for the weights (estimate 'solver')" for name in names]
        if not isinstance(found, Strategies):
            estimates["solver"] = f"none ({'; '.join(failed)})"
            kept = "no solver found weights, so those of the round before stay"
            return DeviceWeights(old, {}, estimates, [*warnings, kept])
        estimates["solver"] = "; ".join([*failed, found.solver])
        estimates["optimality_gap"] = found.gap
        if self.regularization > 0:
            estimates["weight_error"] = weight_error(problem, found.gap)
        estimates["strategies"] = {
            str(number): dict(zip(clients, row, strict=True))
            for number, row in enumerate(found.matrix.tolist())
        }
        # Written as a move from 1/N, so that strategies of equal weights give exactly 1/N.
        alpha = 1 / len(clients) + mixture @ (found.matrix - 1 / len(clients))
        expected = mixture @ utilities.at(found.matrix)
        if count > 1:
            estimates["discrepancy_bound"] = mixture_bound(mixture, len(clients))
        reports = np.array([has_curve(cohort.valuations.get(client)) for client in clients])
        if not (stays(utilities, alpha) & reports).any():
            alpha, chosen = for_one(utilities, count, draws, reports)
            expected = utilities.at(alpha)  # all strategies are the same
            estimates["fallback"] = "equal weights" if chosen is None else clients[chosen]
            if count > 1:
                estimates["discrepancy_bound"] = (count - 1) / len(clients)
        missing = np.maximum(utilities.threshold + self.slack - expected, 0.0)
        gap = utilities.at(alpha) - expected
        estimates["missing_utility"] = dict(zip(clients, missing.tolist(), strict=True))
        estimates["jensen_gap"] = dict(zip(clients, gap.tolist(), strict=True))
        return DeviceWeights(alpha, {}, estimates, warnings)

    def prepare(self) -> None:
        cvxpy_module()


_LEAST_SHARE = 1e-9
"""The smallest share of a strategy; a draw may be 0 if δ is small."""


def _mixture(concentrations: FloatArray, draws: np.random.Generator) -> FloatArray:
    """Draw s, > 0 with the sum 1, in the shape of the concentrations."""
    drawn = np.maximum(draws.dirichlet(concentrations), _LEAST_SHARE)
    return np.asarray(drawn / drawn.sum())


def mixture_bound(mixture: FloatArray, clients: int) -> float:
    """(n_s·‖s‖² − 1)/N, which ‖α − 1/N‖² cannot exceed if the columns of R have the sum n_s/N.

    α − 1/N is Rᵀ(s − 1/n_s), ‖R‖² is at most the largest row sum times the largest column sum,
    which is n_s/N, and ‖s − 1/n_s‖² = ‖s‖² − 1/n_s (Lemma A.10 of the paper before its
    expectation). The weights of the fallback satisfy only the larger bound (n_s − 1)/N of Lemma
    A.11.

    Args:
        mixture: s, shape (n_s,).
    """
    return (len(mixture) * sum_of_squares(mixture) - 1) / clients
