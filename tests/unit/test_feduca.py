"""FedUCA: the problem of its weights against an independent optimum, and what it does with them."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from tests.oracles.problem_seven import Problem, optimum

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.common.exchange import UtilityCurve, Valuation
from muster.common.seeds import FloatArray
from muster.emulator.scenario.scenario import Scenario
from muster.server.aggregators.facts import Cohort
from muster.server.aggregators.feduca import FedUca
from muster.server.aggregators.values import State, Weighing
from muster.server.fleet.devices import EnrolledDevice
from muster.server.knowledge import strategies as problem_seven
from muster.server.knowledge.participation import ParticipationHistory
from muster.server.knowledge.population import Oracle, Population
from muster.server.knowledge.strategies import (
    Strategies,
    StrategyProblem,
    solve,
    weight_error,
)
from muster.server.knowledge.utilities import Utilities, for_one, most_satisfied, stays


def drawn(clients: int, seed: int, above: float = 0.02) -> Utilities:
    """Utilities whose thresholds are near or above what equal weights give."""
    random = np.random.default_rng(seed)
    a, b, c = random.uniform([[0.1], [0.0], [0.2]], [[2.0], [1.5], [0.5]], (3, clients))
    some = Utilities(a, b, c, np.zeros(clients))
    near = some.at(np.full(clients, 1 / clients)) + random.uniform(-above, above, clients)
    return some._replace(threshold=near)


def mixture(strategies: int, seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).dirichlet(np.ones(strategies))


def as_reported(clients: int, seed: int) -> Utilities:
    """Utilities whose thresholds are those of weights near equal ones, as in Algorithm 1."""
    random = np.random.default_rng(seed)
    a, b, c = random.uniform([[0.01], [-0.2], [0.4]], [[1.0], [0.6], [0.9]], (3, clients))
    some = Utilities(a, b, c, np.zeros(clients))
    apart = random.normal(0, 1e-3, clients)
    return some._replace(threshold=some.at(1 / clients + apart - apart.mean()))


def best(problem: StrategyProblem) -> FloatArray:
    """R by active sets (tests/oracles)."""
    curves = np.array(problem.utilities).T
    return optimum(Problem(curves, problem.mixture, problem.slack, problem.regularization))


def solved(utilities: Utilities, s: FloatArray, slack: float = 0.0) -> Strategies:
    found = solve(StrategyProblem(utilities, s, slack))
    assert isinstance(found, Strategies), found
    return found


@pytest.mark.parametrize("kind", ["as reported", "near", "binding"])
@pytest.mark.parametrize(("strategies", "clients"), [(1, 5), (2, 4), (3, 6), (5, 10)])
def test_the_weights_are_those_of_the_optimum(strategies: int, clients: int, kind: str) -> None:
    # As reported, the objective is about 1e-9: an absolute tolerance of it says nothing about α.
    for seed in range(3):
        by_kind = {
            "as reported": as_reported(clients, seed),
            "near": drawn(clients, seed),
            "binding": drawn(clients, seed, above=0.2),
        }
        problem = StrategyProblem(by_kind[kind], mixture(strategies, seed))
        found = solve(problem)
        assert isinstance(found, Strategies), found
        right, s = best(problem), problem.mixture
        apart = np.linalg.norm(s @ right - 1 / clients)
        error = np.linalg.norm(s @ found.matrix - s @ right)
        assert error <= 1e-3 * apart + 1e-12
        assert error <= weight_error(problem, found.gap) + 1e-9
        assert problem.cost(found.matrix) - problem.cost(right) <= found.gap + 1e-15
        assert (found.matrix >= 0).all()
        np.testing.assert_allclose(found.matrix.sum(axis=1), 1, atol=1e-12)
        if strategies > 1:
            np.testing.assert_allclose(found.matrix.sum(axis=0), strategies / clients, atol=1e-9)


@pytest.mark.parametrize("regularization", [1e-4, 0.0])
def test_the_gap_bounds_what_another_matrix_costs_more(regularization: float) -> None:
    problem = StrategyProblem(drawn(6, 3), mixture(3), regularization=regularization)
    found = solve(problem)
    assert isinstance(found, Strategies)
    random = np.random.default_rng(0)
    for size in (1e-3, 1e-2):
        swap = np.zeros((3, 6))
        swap[:2, :2] = [[1, -1], [-1, 1]]  # the sums of rows and columns stay
        other = found.matrix + size * swap * found.matrix[:2, :2].min()
        prices = random.normal(0, 1e-3, 3), random.normal(0, 1e-3, 6)
        more = problem.cost(other) - problem.cost(found.matrix)
        assert more <= problem.gap(other, *prices) + found.gap


def test_a_matrix_that_is_not_optimal_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    # Tolerances of the unscaled problem: the solver is content, but its gap is too large.
    loose = {"tol_gap_abs": 0.1, "tol_gap_rel": 0.1}
    monkeypatch.setattr(problem_seven, "ATTEMPTS", (("CLARABEL", loose), ("CLARABEL", {})))
    found = solve(StrategyProblem(as_reported(8, 1), mixture(2)))
    assert isinstance(found, Strategies)
    [why] = found.fallen_back
    assert why.startswith("CLARABEL: its objective may be ")


def test_thresholds_that_are_utilities_of_equal_weights_leave_exactly_equal_weights() -> None:
    # Algorithm 1 begins with equal weights, so it never leaves them: γ = u(1/N).
    clients = 10
    curves = drawn(clients, seed=4)
    utilities = curves._replace(threshold=curves.at(np.full(clients, 1 / clients)))
    reported = {f"c{k}": UtilityCurve(*(float(of[k]) for of in utilities)) for k in range(clients)}
    weighing = weighed(FedUca(kind="feduca", order="solve-first"), reported)
    assert set(weighing.recalled.values()) == {1 / clients}
    assert weighing.estimates["solver"] == "none needed"
    assert set(weighing.estimates["predicted"].values()) == {1}


def test_without_regularization_the_solver_decides_and_no_error_is_stated() -> None:
    curves = drawn(6, seed=4)
    utilities = curves._replace(threshold=curves.at(np.full(6, 1 / 6)) - 0.01)
    reported = {f"c{k}": UtilityCurve(*(float(of[k]) for of in utilities)) for k in range(6)}
    rule = FedUca(kind="feduca", order="solve-first", regularization=0.0)
    weighing = weighed(rule, reported)
    assert "weight_error" not in weighing.estimates
    # Which of the many solutions it is depends on the processor too.
    problem = StrategyProblem(utilities, np.ones(1), regularization=0.0)
    assert weight_error(problem, 1e-9) == np.inf


def test_one_strategy_is_no_worse_than_five() -> None:
    # Fewer conditions, and by Jensen's inequality mixing strategies only lowers Σ s·u(R).
    utilities = drawn(10, seed=1)
    one, s = StrategyProblem(utilities, np.ones(1)), StrategyProblem(utilities, mixture(5))
    mean = solved(utilities, one.mixture).matrix
    assert one.cost(mean) <= s.cost(solved(utilities, s.mixture).matrix) + 1e-9


def test_a_problem_solved_before_does_not_change_the_next_solution() -> None:
    # No other test has this shape, so the first solution is that of a new process.
    utilities, s = drawn(7, seed=2), mixture(4)
    first = solved(utilities, s).matrix
    solved(drawn(7, seed=3), mixture(4, seed=4))
    np.testing.assert_array_equal(solved(utilities, s).matrix, first)


def test_satisfied_thresholds_cost_nothing_and_leave_equal_weights() -> None:
    utilities = drawn(4, seed=5)
    easy = utilities._replace(threshold=np.zeros(4))
    np.testing.assert_array_equal(solved(easy, mixture(2)).matrix, 0.25)


@pytest.mark.parametrize("seed", range(6))
def test_the_attainable_number_is_that_of_the_best_subset(seed: int) -> None:
    utilities = drawn(7, seed, above=0.3)
    low, high = utilities.intervals()
    fine = [place for place in range(7) if not np.isnan(low[place])]
    for place in fine:
        weights = np.zeros(7)
        weights[place] = (low[place] + high[place]) / 2
        assert stays(utilities, weights)[place]
    best = max(
        size
        for size in range(len(fine) + 1)
        if any(sum(low[list(some)]) <= 1 for some in combinations(fine, size))
    )
    assert most_satisfied(utilities) == best


def test_the_fallback_keeps_one_client() -> None:
    # Client 1 stays from 0.3 to 0.7, client 0 nowhere: u = -r² + r + 0.5, 0.71 at 0.3 and 0.7.
    utilities = Utilities(*np.array([[1.0, 1.0], [1.0, 1.0], [0.5, 0.5], [0.9, 0.71]]))
    everybody = np.ones(2, bool)
    weights, chosen = for_one(
        utilities, strategies=1, draws=np.random.default_rng(0), among=everybody
    )
    assert chosen == 1
    np.testing.assert_allclose(weights, [0.5, 0.5])
    nobody = utilities._replace(threshold=np.array([0.9, 0.9]))
    weights, chosen = for_one(nobody, strategies=1, draws=np.random.default_rng(0), among=everybody)
    assert chosen is None
    np.testing.assert_allclose(weights, [0.5, 0.5])


def test_the_fallback_gives_no_client_more_than_its_share_of_strategies() -> None:
    # u = -r² + 2r grows up to 1; client 0 stays from 0.1 on: u(0.1) = 0.19.
    a, b, c = np.ones(4), np.full(4, 2.0), np.zeros(4)
    utilities = Utilities(a, b, c, np.array([0.19, 2.0, 2.0, 2.0]))
    everybody = np.ones(4, bool)
    weights, chosen = for_one(
        utilities, strategies=2, draws=np.random.default_rng(0), among=everybody
    )
    assert chosen == 0
    np.testing.assert_allclose(weights, [0.5, 0.5 / 3, 0.5 / 3, 0.5 / 3])


def weighed(
    rule: FedUca, curves: Mapping[str, UtilityCurve | None], state: State | None = None
) -> Weighing:
    """The weights of a round in which devices have reported these curves; None: nothing."""
    clients = sorted(curves)
    devices = {client: EnrolledDevice(client, "g", n, 1) for n, client in enumerate(clients)}
    people = Population(clients, [], [{}] * len(clients), devices, {}, Oracle())
    told = {c: Valuation(0.5, 0.5, curve) for c, curve in curves.items() if curve is not None}
    cohort = Cohort(2, [], people, ParticipationHistory([]), valuations=told)
    return rule.weigh(cohort, state or rule.initial_state(np.zeros(1, np.float32)))


@pytest.mark.parametrize("away", [0, 1])
def test_a_device_that_reports_nothing_is_nobody_who_stays(away: int) -> None:
    # u = -r² + 1.2·r + 0.3 reaches γ = 0.5375 from 0.25 on: not at the weights near 1/6 of all.
    asks = UtilityCurve(1.0, 1.2, 0.3, 0.5375)
    curves = {c: asks if place >= away else None for place, c in enumerate("abcdef")}
    weighing = weighed(FedUca(kind="feduca", strategies=2, order="solve-first"), curves)
    chosen = weighing.estimates["fallback"]
    assert chosen in list("abcdef")[away:]
    # The paper's weight b / 2a = 0.6 is more than n_s / N.
    others = {c: weight for c, weight in weighing.recalled.items() if c != chosen}
    assert weighing.recalled[chosen] == pytest.approx(1 / 3)
    assert list(others.values()) == pytest.approx([2 / 15] * 5)


def test_lagged_weights_are_those_that_the_round_before_has_solved() -> None:
    # u = -r² + 1.2·r + 0.3 reaches γ = 0.5375 from 0.25 on, so each round solves anew.
    curves = {c: UtilityCurve(1.0, 1.2, 0.3, 0.5375) for c in "abcdef"}
    first = weighed(FedUca(kind="feduca", strategies=2), curves)
    assert list(first.recalled.values()) == [1 / 6] * 6
    second = weighed(FedUca(kind="feduca", strategies=2), curves, first.state)
    assert second.recalled == first.estimates["solved"] != first.recalled


RATIONAL: dict[str, Any] = {"name": "silo", "count": 4, "participation": {"kind": "rational"}}


def refusal(groups: list[dict[str, Any]], **server: Any) -> str:
    values = {
        "name": "test",
        "task": {"name": "digits", "validation_ratio": 0.2},
        "server": {"rounds": 3, "aggregator": "feduca", **server},
        "groups": groups,
    }
    try:
        validate(Scenario, values, "test")
    except ConfigError as error:
        return str(error)
    return ""


def test_feduca_is_refused_where_it_cannot_work() -> None:
    assert refusal([RATIONAL]) == ""
    assert "some are not rational" in refusal([RATIONAL, {"name": "other", "count": 1}])
    assert "expected 'all'" in refusal([RATIONAL], selection={"kind": "uniform", "k": 2})
    assert "makes small rounds empty; expected 1" in refusal([RATIONAL], minimum=2)
    mode = {"kind": "buffered", "k": 2, "concurrency": 4, "staleness_weight": "constant"}
    assert "take server.mode = 'synchronous'" in refusal([RATIONAL], mode=mode)
    # Devices are told which of their updates counted.
    assert refusal([RATIONAL], deadline_s=5.0, goal=2, guard={"max_norm": 1.0}) == ""
    smaller = {**RATIONAL, "link": {"compression": "float16"}}
    assert "link.compression = 'float16'" in refusal([smaller])


def test_if_every_solver_fails_the_old_weights_stay_and_the_ledger_names_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost: list[tuple[str, dict[str, float]]] = [("GONE", {}), ("LOST", {})]
    monkeypatch.setattr(problem_seven, "ATTEMPTS", lost)
    # u = -r² + 1.2·r + 0.3 misses γ = 0.7 at equal weights, so a solver is needed.
    asks = UtilityCurve(1.0, 1.2, 0.3, 0.7)
    rule = FedUca(kind="feduca", order="solve-first")
    old = {"alpha": np.array([0.2, 0.3, 0.5]), "next": np.array([0.5, 0.3, 0.2])}
    weighing = weighed(rule, dict.fromkeys("abc", asks), old)
    assert weighing.recalled == {"a": 0.5, "b": 0.3, "c": 0.2}
    assert list(weighing.weights) == []
    solver = weighing.estimates["solver"]
    assert solver.startswith("none (GONE: SolverError: ")
    assert "; LOST: SolverError: " in solver
    assert weighing.estimates["solver_failures"] == 2
    gone, lost_too, kept = weighing.warnings
    assert gone == "GONE failed to solve for the weights (estimate 'solver')"
    assert lost_too.startswith("LOST failed to solve")
    assert kept == "no solver found weights, so those of the round before stay"
