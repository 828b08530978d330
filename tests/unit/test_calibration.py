from collections.abc import Callable
from typing import Any

import cvxpy
import numpy as np
import pytest
from cvxpy.error import SolverError
from scipy.optimize import minimize  # type: ignore[import-untyped]

from muster.common.errors import ConfigError
from muster.common.seeds import FloatArray, stream
from muster.server.knowledge import calibration
from muster.server.knowledge.calibration import (
    CalibrationResult,
    calibrate,
    entropy,
    quadratic,
    soft,
)
from muster.server.knowledge.feasibility import Unsolved, feasible

Cost = Callable[[FloatArray], float]


def enrolled(n: int, seed: int = 1) -> tuple[FloatArray, FloatArray]:
    """b of n devices, two numbers and an indicator; and means that some of them have together."""
    random = stream(seed, "enrolled")
    b = np.column_stack([random.standard_normal((n, 2)), random.random(n) < 0.4])
    return b, random.dirichlet(np.full(n, 0.7)) @ b


def by_slsqp(cost: Cost, b: FloatArray, target: FloatArray | None) -> FloatArray:
    """The q of least cost, as a general solver finds it."""
    conditions = [{"type": "eq", "fun": lambda q: q.sum() - 1}]
    if target is not None:
        conditions.append({"type": "eq", "fun": lambda q: q @ b - target})
    n = len(b)
    options = {"maxiter": 1000, "ftol": 1e-11}
    found = minimize(
        cost,
        np.full(n, 1 / n),
        jac="3-point",
        bounds=[(0, 1)] * n,
        constraints=conditions,
        options=options,
    )
    assert found.success
    return np.asarray(found.x)


def is_a_distribution(q: FloatArray) -> bool:
    return bool((q >= 0).all()) and q.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_quadratic_is_nearest_to_equal_weights(seed: int) -> None:
    b, target = enrolled(12, seed)
    found = quadratic(b, target)
    assert (found.method, found.solver, found.fallen_back) == ("quadratic", "CLARABEL", [])
    assert is_a_distribution(found.q)
    assert found.residual < 1e-8
    expected = by_slsqp(lambda q: float(np.sum((12 * q - 1) ** 2)), b, target)
    np.testing.assert_allclose(found.q, expected, atol=1e-5)


def test_quadratic_satisfies_the_conditions_of_an_optimum() -> None:
    # n·q_i = max(0, 1 + λ₀ + λᵀb_i) with the same λ for all.
    b, _ = enrolled(400)
    w = 400 * quadratic(b, np.array([1.2, -0.4, 0.2])).q
    ones = np.column_stack([np.ones(400), b])
    positive = w > 1e-4
    assert 0.3 < positive.mean() < 0.8
    multipliers = np.linalg.lstsq(ones[positive], w[positive] - 1, rcond=None)[0]
    np.testing.assert_allclose(w, np.maximum(0, 1 + ones @ multipliers), atol=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_entropy_is_an_exponential_of_the_moments(seed: int) -> None:
    b, target = enrolled(200, seed)
    found = entropy(b, target)
    assert (found.method, found.solver, found.fallen_back) == ("entropy", "Newton", [])
    assert is_a_distribution(found.q)
    assert found.residual < 1e-8
    ones = np.column_stack([np.ones(200), b])
    logs = np.log(found.q)
    np.testing.assert_allclose(logs, ones @ np.linalg.lstsq(ones, logs, rcond=None)[0], atol=1e-8)


def test_entropy_has_the_largest_entropy() -> None:
    b, target = enrolled(10)
    expected = by_slsqp(lambda q: float(np.sum(q * np.log(np.maximum(q, 1e-300)))), b, target)
    np.testing.assert_allclose(entropy(b, target).q, expected, atol=1e-5)


def test_soft_weighs_distances_of_weights_and_of_means() -> None:
    b, _ = enrolled(12)
    target = np.array([1.0, -3.0, 1.1])  # outside
    spread = b.std(axis=0)
    found = soft(b, target, penalty=7.0)

    def cost(q: FloatArray) -> float:
        missed = (q @ b - target) / spread
        return float(np.sum((12 * q - 1) ** 2) / 12 + 7 * missed @ missed)

    assert (found.method, found.solver, found.fallen_back) == ("soft", "CLARABEL", [])
    assert is_a_distribution(found.q)
    np.testing.assert_allclose(found.q, by_slsqp(cost, b, None), atol=1e-5)
    assert found.residual == pytest.approx(np.linalg.norm(found.q @ b - target))


@pytest.mark.parametrize("penalty", [1.0, 9.0, 1e4])
def test_what_soft_leaves_of_a_distance_is_one_over_one_plus_the_penalty(penalty: float) -> None:
    b = np.linspace(-1, 1, 50)[:, np.newaxis] * 1000
    found = soft(b, np.array([100.0]), penalty)
    assert found.residuals[0] == pytest.approx(-100 / (1 + penalty), rel=1e-5)


@pytest.mark.parametrize("method", [quadratic, entropy, soft])
def test_means_that_are_right_already_need_equal_weights(
    method: Callable[[FloatArray, FloatArray], CalibrationResult],
) -> None:
    b, _ = enrolled(60)
    np.testing.assert_allclose(method(b, b.mean(axis=0)).q, np.full(60, 1 / 60), atol=1e-8)


def test_shares_of_strata_become_those_of_the_population() -> None:
    # Three of four have the new release; in the population, every second: 1/6 each, and 1/2.
    b, target = np.array([[1.0], [1.0], [1.0], [0.0]]), np.array([0.5])
    for method in (quadratic, entropy):
        np.testing.assert_allclose(method(b, target).q, [1 / 6, 1 / 6, 1 / 6, 1 / 2], atol=1e-9)


@pytest.mark.parametrize("method", ["quadratic", "entropy", "soft"])
@pytest.mark.parametrize(
    ("b", "target"),
    [
        (np.zeros((5, 0)), np.zeros(0)),  # no moments
        (np.array([[2.0, 7.0]]), np.array([2.0, 7.0])),  # a single device
        (np.full((4, 2), 0.1), np.array([0.1, 0.1])),  # nothing differs
    ],
    ids=["d=0", "n=1", "constant"],
)
def test_where_nothing_is_to_be_chosen_weights_are_equal(
    method: calibration.Method, b: FloatArray, target: FloatArray
) -> None:
    found = calibrate(method, b, target)
    np.testing.assert_allclose(found.q, np.full(len(b), 1 / len(b)), atol=1e-12)
    assert found.method == method
    assert found.residual < 1e-12


@pytest.mark.parametrize("method", [quadratic, entropy])
def test_columns_that_say_the_same_or_nothing_change_nothing(
    method: Callable[[FloatArray, FloatArray], CalibrationResult],
) -> None:
    b, target = enrolled(80)
    # A constant, a column twice and in other units, an indicator and its opposite.
    more = np.column_stack([b, np.full(80, 0.1), 1e9 * b[:, 0], 1 - b[:, 2]])
    aims = np.array([*target, 0.1, 1e9 * target[0], 1 - target[2]])
    found = method(more, aims)
    np.testing.assert_allclose(found.q, method(b, target).q, atol=1e-8)
    assert not found.fallen_back


@pytest.mark.parametrize("method", [quadratic, entropy])
def test_devices_of_a_sort_that_the_population_lacks_get_nothing(
    method: Callable[[FloatArray, FloatArray], CalibrationResult],
) -> None:
    # On the border of what can be reached: only the first two may have weight.
    b = np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 1.0], [4.0, 1.0]])
    target = np.array([1.25, 0.0])
    assert feasible(b, target)
    found = method(b, target)
    np.testing.assert_allclose(found.q, [0.75, 0.25, 0, 0], atol=1e-7)
    assert found.residual < 1e-8


@pytest.mark.parametrize("solve", [quadratic, soft])
def test_where_q_is_0_nothing_is_left_of_a_solver(
    solve: Callable[[FloatArray, FloatArray], CalibrationResult],
) -> None:
    b = np.linspace(-3, 0, 15)[:, np.newaxis]
    found = solve(b, np.array([-0.1]))
    assert (found.q == 0).sum() >= 11
    assert (15 * found.q[found.q > 0] > 1e-3).all()
    assert is_a_distribution(found.q)
    if solve is quadratic:
        assert found.residual < 1e-8


def test_weights_that_no_longer_meet_the_means_without_their_least_are_left() -> None:
    # The last device alone can have the mean. Its n·q is 8e-7, which counts as 0.
    found = quadratic(np.array([[0.0], [0.0], [0.0], [1.0]]), np.array([2e-7]))
    assert (found.method, found.solver) == ("entropy", "Newton")
    assert "quadratic by CLARABEL: its weights miss a mean by 4e-07" in found.fallen_back[0]


def test_the_same_problem_gives_the_same_bits() -> None:
    b, target = enrolled(100)
    for method in (quadratic, entropy, soft):
        np.testing.assert_array_equal(method(b, target).q, method(b, target).q)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ([0.2, 0.2], True),
        ([0.5, 0.5], True),  # on an edge
        ([1.0, 0.0], True),  # at a corner
        ([0.5, 0.6], False),  # each alone can be reached
        ([0.5, 0.5 + 1e-6], False),
        ([-0.1, 0.5], False),
    ],
)
@pytest.mark.parametrize("unit", [1.0, 1e6, 1e-6])
def test_means_are_feasible_inside_the_hull_alone(
    target: list[float], expected: bool, unit: float
) -> None:
    triangle = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert feasible(triangle * unit, np.array(target) * unit) is expected


def test_a_tolerance_lets_means_be_a_little_outside() -> None:
    b = np.array([[0.0], [1.0]])
    assert not feasible(b, np.array([1.01]))
    assert feasible(b, np.array([1.01]), tolerance=0.02)


def test_means_that_nobody_has_are_refused_with_what_can_be_reached() -> None:
    b = np.array([[0.0, 5.0], [0.5, 6.0]])
    with pytest.raises(ConfigError) as refused:
        calibrate("quadratic", b, np.array([0.9, 5.5]), names=["os=15", "age"])
    told = str(refused.value)
    assert "os=15 = 0.9, and theirs lie between 0 and 0.5" in told
    assert "age" not in told
    assert "if_infeasible or method = 'soft'" in told


def test_means_that_nobody_has_together_are_refused_with_the_nearest() -> None:
    b = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(
        ConfigError, match=r"together: a = 0.8, b = 0.8; the nearest that they can have is a = "
    ):
        calibrate("entropy", b, np.array([0.8, 0.8]), names=["a", "b"])


@pytest.mark.parametrize("method", ["quadratic", "entropy"])
def test_means_that_nobody_has_are_approached_where_that_is_allowed(
    method: calibration.Method,
) -> None:
    b, target = np.array([[0.0], [0.5]]), np.array([0.9])
    found = calibrate(method, b, target, penalty=50, if_infeasible="soft")
    np.testing.assert_array_equal(found.q, soft(b, target, 50).q)
    assert found.method == "soft"
    [why] = found.fallen_back
    assert why.startswith(f"{method}: no weights of the enrolled have")


@pytest.mark.parametrize("outside", [1e-12, 1e-10, 1e-9, 9e-9])
@pytest.mark.parametrize("method", ["quadratic", "entropy"])
def test_means_that_are_outside_by_a_rounding_are_met(
    method: calibration.Method, outside: float
) -> None:
    b = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.2, 0.2]])
    found = calibrate(method, b, np.array([0.5, 0.5 + outside]))
    assert (found.method, found.fallen_back) == (method, [])
    assert found.residual < 1e-8


def test_what_a_solver_cannot_is_solved_by_the_next_and_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    b, target = enrolled(30)
    expected = quadratic(b, target).q
    solve, broken = cvxpy.Problem.solve, set[str]()

    def breaking(problem: Any, solver: str, **options: Any) -> Any:
        if solver in broken:
            raise SolverError("it broke")
        return solve(problem, solver=solver, **options)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(cvxpy.Problem, "solve", breaking)
    for solver in ("OSQP", "SCS"):
        broken.add("CLARABEL" if solver == "OSQP" else "OSQP")
        found = calibrate("quadratic", b, target)
        assert (found.method, found.solver) == ("quadratic", solver)
        assert len(found.fallen_back) == len(broken)
        assert found.fallen_back[0] == "quadratic by CLARABEL: SolverError: it broke"
        np.testing.assert_allclose(found.q, expected, atol=1e-6)
        assert found.residual < 1e-6
    broken.add("SCS")
    found = calibrate("quadratic", b, target)
    assert (found.method, found.solver, len(found.fallen_back)) == ("entropy", "Newton", 3)
    with pytest.raises(ConfigError, match=r"no weights were found .* soft by SCS: SolverError"):
        calibrate("soft", b, target)


def test_where_newton_fails_weights_are_quadratic_and_it_is_said() -> None:
    found = entropy(*enrolled(30), steps=1)
    assert (found.method, found.solver) == ("quadratic", "CLARABEL")
    assert found.fallen_back[0].startswith("entropy by Newton: after 1 steps the means are still")


def test_an_infeasible_problem_that_is_not_looked_at_first_is_unsolved() -> None:
    for method in (quadratic, entropy):
        with pytest.raises(Unsolved, match="quadratic by CLARABEL: its status is infeasible"):
            method(np.array([[0.0], [1.0]]), np.array([2.0]))


@pytest.mark.parametrize(
    ("b", "target"),
    [
        (np.zeros((0, 1)), np.zeros(1)),
        (np.zeros((3, 2)), np.zeros(1)),
        (np.array([[np.nan]]), np.zeros(1)),
    ],
)
def test_what_is_no_problem_at_all_is_refused(b: FloatArray, target: FloatArray) -> None:
    for method in (quadratic, entropy, soft, feasible):
        with pytest.raises(ValueError, match=r"shape|finite"):
            method(b, target)


def test_with_moments_that_do_not_suffice_quadratic_can_be_worse_than_nothing() -> None:
    # Enrollment by Z, updates that go with Z². The mean of Z says who is missing, but not how their
    # Z² differ: quadratic weights, which reach 0, take away more of the rare than entropy's.
    random = stream(2, "insufficient")
    z = random.standard_normal(20_000)
    here = random.random(len(z)) < 1 / (1 + np.exp(0.5 - 1.5 * z))

    def bias(q: FloatArray) -> float:
        return abs(float(q @ z[here] ** 2 - np.mean(z**2)))

    def calibrated(method: calibration.Method, b: FloatArray) -> float:
        return bias(calibrate(method, b[here], b.mean(axis=0)).q)

    nothing = bias(np.full(here.sum(), 1 / here.sum()))
    coarse, enough = z[:, np.newaxis], np.column_stack([z, z**2])
    assert calibrated("quadratic", coarse) > 3 * nothing
    assert calibrated("entropy", coarse) < 0.7 * calibrated("quadratic", coarse)
    assert calibrated("quadratic", enough) < 1e-6
    assert calibrated("entropy", enough) < 1e-6
