"""Weights under utility constraints: intervals, the largest participation, and bounds."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.common.seeds import FloatArray
from muster.server.aggregators.feduca import mixture_bound
from muster.server.knowledge import strategies as problem_seven
from muster.server.knowledge.strategies import Strategies, StrategyProblem, solve
from muster.server.knowledge.utilities import (
    Utilities,
    for_one,
    keeping_most,
    most_satisfied,
    satisfiable,
    stays,
)


@st.composite
def some_utilities(draw: st.DrawFn, most: int = 6) -> Utilities:
    """Utilities of a few clients; some thresholds are utilities of a weight, as with `threshold =
    "weight"`, so that an interval begins or ends exactly there."""
    clients = draw(st.integers(2, most))
    random = np.random.default_rng(draw(st.integers(0, 10_000)))
    a, b, c = random.uniform([[0.05], [-0.5], [0.1]], [[3.0], [2.0], [0.6]], (3, clients))
    some = Utilities(a, b, c, np.zeros(clients))
    old = random.dirichlet(np.ones(clients))
    above = draw(st.sampled_from([0.0, 0.02, 0.2])) * random.uniform(-1, 1, clients)
    return some._replace(threshold=some.at(old) + above)


def by_roots(utilities: Utilities) -> list[tuple[float, float] | None]:
    """Roots of u(r) = γ within [0, 1] by numpy, for each client that has some."""
    found: list[tuple[float, float] | None] = []
    for a, b, c, threshold in zip(*utilities, strict=True):
        best = float(np.clip(b / (2 * a), 0, 1))
        roots = np.roots([-a, b, c - threshold])
        real = np.sort(roots.real[np.abs(roots.imag) < 1e-9])
        there = (b - a * best) * best + c >= threshold
        ends = np.clip(real, 0, 1).tolist() if there else []
        found.append((ends[0], ends[-1]) if ends else None)
    return found


@given(some_utilities())
def test_intervals_begin_and_end_where_the_utility_is_the_threshold(utilities: Utilities) -> None:
    low, high = utilities.intervals()
    for place, roots in enumerate(by_roots(utilities)):
        if roots is None:
            assert np.isnan(low[place])
            assert np.isnan(high[place])
            continue
        assert low[place] == pytest.approx(roots[0], abs=1e-6)
        assert high[place] == pytest.approx(roots[1], abs=1e-6)
    fine = ~np.isnan(low)
    assert stays(utilities, np.nan_to_num(low))[fine].all()
    assert stays(utilities, np.nan_to_num(high))[fine].all()


def largest_set(utilities: Utilities) -> int:
    """The size of the largest set whose smallest weights fit into 1, by trying all sets."""
    roots = by_roots(utilities)
    low = {place: float(pair[0]) for place, pair in enumerate(roots) if pair is not None}
    sizes = range(len(low) + 1)
    return max(
        s for s in sizes if any(sum(some) <= 1 + 1e-7 for some in combinations(low.values(), s))
    )


@given(some_utilities())
def test_the_largest_participation_is_that_of_the_best_set_and_is_reached(
    utilities: Utilities,
) -> None:
    alpha, chosen = keeping_most(utilities), satisfiable(utilities)
    assert chosen.sum() == most_satisfied(utilities) == largest_set(utilities)
    assert (alpha >= 0).all()
    assert alpha.sum() <= 1 + 1e-9
    assert stays(utilities, alpha)[chosen].all()
    if not chosen.all():
        assert alpha.sum() == pytest.approx(1, abs=1e-12)


@given(some_utilities(4), st.integers(0, 1000))
def test_no_other_weights_that_keep_the_same_clients_are_nearer_to_equal_ones(
    utilities: Utilities, seed: int
) -> None:
    alpha, chosen = keeping_most(utilities), satisfiable(utilities)
    clients = len(alpha)
    low, high = utilities.intervals()
    least, most = np.where(chosen, low, 0), np.where(chosen, high, 1)
    random = np.random.default_rng(seed)
    for _ in range(20):  # moving weight from one client to another within the intervals
        one, other = random.choice(clients, 2, replace=False)
        room = max(0.0, min(alpha[one] - least[one], most[other] - alpha[other]))
        moved = alpha.copy()
        step = room * random.random()
        moved[one] -= step
        moved[other] += step
        assert np.sum((moved - 1 / clients) ** 2) >= np.sum((alpha - 1 / clients) ** 2) - 1e-12


def test_the_rest_of_the_weight_goes_where_it_drives_nobody_away() -> None:
    # u = -r² + b·r. Client 0 stays from 0.6 to 0.7: b = 1.3, γ = 0.42. Client 1 stays from 0.1 to
    # 0.3: b = 0.4, γ = 0.03. Client 2 never stays. Clients 0 and 1 need 0.7 and may have 1.0
    # together; of the weights with the sum 1, (0.6, 0.2, 0.2) are the nearest to equal ones.
    utilities = Utilities(
        *np.array([[1.0, 1.0, 1.0], [1.3, 0.4, 0.1], [0.0] * 3, [0.42, 0.03, 9.0]])
    )
    np.testing.assert_allclose(keeping_most(utilities), [0.6, 0.2, 0.2], atol=1e-12)


def test_weight_that_would_drive_somebody_away_is_given_to_nobody() -> None:
    # u = -r² stays at γ = -0.04 up to 0.2: three such clients can have 0.6 together.
    utilities = Utilities(np.ones(3), np.zeros(3), np.zeros(3), np.full(3, -0.04))
    np.testing.assert_allclose(keeping_most(utilities), 0.2)
    assert stays(utilities, keeping_most(utilities)).all()


def mixed(strategies: int, seed: int, concentration: float = 1.0) -> FloatArray:
    drawn = np.random.default_rng(seed).dirichlet(np.full(strategies, concentration))
    shares: FloatArray = np.maximum(drawn, 1e-9)
    return np.asarray(shares / shares.sum())


@settings(max_examples=40, deadline=None)
@given(some_utilities(), st.integers(1, 3), st.integers(0, 1000))
def test_solutions_satisfy_no_more_clients_than_the_largest_participation(
    utilities: Utilities, strategies: int, seed: int
) -> None:
    mixture = mixed(min(strategies, len(utilities.a)), seed)
    found = solve(StrategyProblem(utilities, mixture))
    assert isinstance(found, Strategies), found
    kept = stays(utilities, mixture @ found.matrix).sum()
    assert kept <= stays(utilities, keeping_most(utilities)).sum()


@settings(max_examples=40, deadline=None)
@given(some_utilities(), st.integers(2, 4), st.integers(0, 1000), st.sampled_from([0.1, 1, 100]))
def test_the_discrepancy_stays_below_its_bound(
    utilities: Utilities, strategies: int, seed: int, concentration: float
) -> None:
    clients = len(utilities.a)
    count = min(strategies, clients)
    mixture = mixed(count, seed, concentration)
    found = solve(StrategyProblem(utilities, mixture))
    assert isinstance(found, Strategies), found
    alpha = mixture @ found.matrix
    bound = mixture_bound(mixture, clients)
    assert bound == pytest.approx((count * sum(s * s for s in mixture) - 1) / clients)
    assert np.sum((alpha - 1 / clients) ** 2) <= bound + 1e-7
    weights, _ = for_one(utilities, count, np.random.default_rng(seed), np.ones(clients, bool))
    assert np.sum((weights - 1 / clients) ** 2) <= (count - 1) / clients + 1e-12
    assert weights.sum() == pytest.approx(1)


def test_a_solver_that_fails_is_named_and_the_next_one_tries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # u = -r² + r: with equal weights 0.1875, which is less than 0.19.
    utilities = Utilities(np.ones(4), np.ones(4), np.zeros(4), np.full(4, 0.19))
    some = StrategyProblem(utilities, mixed(2, seed=0))
    right = solve(some)
    lost: tuple[str, dict[str, float]] = ("NOT_INSTALLED", {})
    monkeypatch.setattr(problem_seven, "ATTEMPTS", (lost, problem_seven.ATTEMPTS[-1]))
    found = solve(some)
    assert isinstance(found, Strategies)
    assert isinstance(right, Strategies)
    assert found.solver == "SCS"
    [why] = found.fallen_back
    assert why.startswith("NOT_INSTALLED: SolverError: The solver NOT_INSTALLED is not installed")
    np.testing.assert_allclose(found.matrix, right.matrix, atol=1e-6)
    monkeypatch.setattr(problem_seven, "ATTEMPTS", (lost,))
    assert solve(some) == (why,)
