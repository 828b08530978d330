"""Calibration: weights of the enrolled devices whose weighted means equal the means of the
population: q >= 0, Σ q = 1, Σ q_i·b_i = μ.

    quadratic   the q nearest to equal weights: min ‖n·q − 1‖². Some q may be exactly 0
    entropy     q_i proportional to exp(λᵀb_i). None is 0
    soft        like quadratic, but the means are only approached; a solution always exists

FedIPW (Who Trains Matters), section 5 and appendix C, equations (17) and (18); (18) omits the
condition q >= 0. Deville, Särndal, Calibration estimators in survey sampling, JASA 87 (1992): the
choice of the distance from equal weights matters little if the means suffice to tell which devices
are missing. If they do not, every method can be worse than equal weights, quadratic sooner than
entropy.

If a solver fails, the next one is tried; `CalibrationResult` names the one that succeeded.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from muster.common.errors import ConfigError
from muster.common.seeds import FloatArray
from muster.server.knowledge.feasibility import (
    HULL_TOLERANCE,
    ROUNDING,
    Unsolved,
    describe_infeasible,
    differences,
    nearest_means,
    scaled_differences,
)
from muster.server.knowledge.solvers import cvxpy_module

Method = Literal["quadratic", "entropy", "soft"]

# In the order in which they are tried. `use_indirect` is off because every build of SCS has the
# direct linear solver.
_SOLVERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "CLARABEL": {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10},
    "OSQP": {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iter": 100_000},
    "SCS": {"eps": 1e-9, "max_iters": 100_000, "use_indirect": False},
}

STEPS = 200
"""By default, the most steps of Newton's method."""

_MEAN_TOLERANCE = 1e-7
"""How far a weighted mean may lie from μ, in root mean squares of b − μ."""

_NEWTON_TOLERANCE = 1e-10
"""As `_MEAN_TOLERANCE`, for Newton's method."""

_ZERO = 1e-6
"""An n·q below it is set to 0: where q >= 0 binds, solvers leave about 1e-10 of either sign. If
only such devices took part in a round, their proportions, which are rounding, would decide it."""


class CalibrationResult(NamedTuple):
    """The calibrated weights of n devices.

    Attributes:
        q: the weights, >= 0, with the sum 1, shape (n,).
        method: the method that found them in the end.
        solver: CLARABEL, OSQP, SCS or Newton.
        residuals: Σ q_i·b_i − μ, shape (d,).
        fallen_back: one sentence for each attempt that failed before, with the reason.
    """

    q: FloatArray
    method: Method
    solver: str
    residuals: FloatArray
    fallen_back: Sequence[str] = ()

    @property
    def residual(self) -> float:
        """‖Σ q_i·b_i − μ‖."""
        return float(np.linalg.norm(self.residuals))


def calibrate(
    method: Method,
    b: FloatArray,
    target: FloatArray,
    penalty: float = 100.0,
    if_infeasible: Literal["refuse", "soft"] = "refuse",
    names: Sequence[str] = (),
) -> CalibrationResult:
    """Compute the weights with the method of this name.

    Args:
        b: b(Z) of the enrolled devices, shape (n, d), n > 0.
        target: μ, shape (d,).
        penalty: see `soft`.
        if_infeasible: what to do if no weights have these means.
        names: names of the d moments, for messages.

    Raises:
        ConfigError: no weights have these means and `if_infeasible` is "refuse"; or no solver found
            weights.
    """
    try:
        if method == "soft":
            return soft(b, target, penalty)
        distance, reached = nearest_means(b, target)
        if distance > HULL_TOLERANCE:
            reason = describe_infeasible(b, target, reached, names)
            if if_infeasible == "refuse":
                raise ConfigError(
                    f"{reason}. Leave such means out, take coarser features of Z, or allow means "
                    f"that are only approached (if_infeasible or method = 'soft')"
                )
            found = soft(b, target, penalty)
            return found._replace(fallen_back=[f"{method}: {reason}", *found.fallen_back])
        # If μ is outside by no more than the tolerance, the nearest point of the hull replaces it.
        aim = target if distance < ROUNDING else reached
        found = quadratic(b, aim) if method == "quadratic" else entropy(b, aim)
        return found._replace(residuals=found.q @ b - target)
    except Unsolved as error:
        raise ConfigError(f"no weights were found for the enrolled: {error}") from None


def quadratic(b: FloatArray, target: FloatArray) -> CalibrationResult:
    """Minimise ‖n·q − 1‖² over q >= 0, Σ q = 1, Σ q_i·b_i = μ. If no solver can, use entropy.

    Args: see `calibrate`.

    Raises:
        Unsolved: no solver found weights, usually because none exist.
    """
    a = _directions(b, target)
    return _first_success([*_cvxpy_attempts("quadratic", a), _newton_attempt(a)], b, target)


def entropy(b: FloatArray, target: FloatArray, steps: int = STEPS) -> CalibrationResult:
    """Maximise −Σ q·log q over Σ q = 1, Σ q_i·b_i = μ, which gives q_i ∝ exp(λᵀb_i). If Newton's
    method fails, use quadratic.

    Args: see `calibrate`, and
        steps: the most steps of Newton's method.

    Raises:
        Unsolved: no solver found weights, usually because none exist.
    """
    a = _directions(b, target)
    return _first_success([_newton_attempt(a, steps), *_cvxpy_attempts("quadratic", a)], b, target)


def soft(b: FloatArray, target: FloatArray, penalty: float = 100.0) -> CalibrationResult:
    """Minimise ‖n·q − 1‖²/n + penalty · Σ_j ((Σ q_i·b_ij − μ_j) / sd_j)² over q >= 0, Σ q = 1.

    Args: see `calibrate`, and
        penalty: > 0. sd is the standard deviation of b over the enrolled devices. Weights that move
            one mean by m·sd cost m², so 1 / (1 + penalty) of its distance remains while no q is 0.

    Raises:
        Unsolved: no solver found weights.
    """
    a, spread = differences(b, target), b.std(axis=0)
    spread[spread <= ROUNDING * np.abs(b).max(axis=0)] = 1.0
    return _first_success(_cvxpy_attempts("soft", a / spread, penalty), b, target)


_Attempt = tuple[Method, str, Callable[[], FloatArray]]
"""A method, the name of a solver, and the function that solves."""


def _first_success(
    attempts: Sequence[_Attempt], b: FloatArray, target: FloatArray
) -> CalibrationResult:
    """Return the weights of the first attempt that succeeds."""
    fallen_back = list[str]()
    for method, solver, solve in attempts:
        try:
            q = solve()
        except Unsolved as error:
            fallen_back.append(f"{method} by {solver}: {error}")
        else:
            return CalibrationResult(q, method, solver, q @ b - target, fallen_back)
    raise Unsolved("; ".join(fallen_back))


def _newton_attempt(a: FloatArray, steps: int = STEPS) -> _Attempt:
    return "entropy", "Newton", partial(_solve_by_newton, a, steps)


def _cvxpy_attempts(method: Method, a: FloatArray, penalty: float | None = None) -> list[_Attempt]:
    return [(method, solver, partial(_solve_by_cvxpy, a, penalty, solver)) for solver in _SOLVERS]


def _directions(b: FloatArray, target: FloatArray) -> FloatArray:
    """Return uncorrelated columns a of mean square 1, shape (n, rank), for which Σ q_i·a_i = 0 is
    equivalent to Σ q_i·b_i = μ. Columns of b that depend on others add none."""
    left, sizes, _ = np.linalg.svd(scaled_differences(b, target), full_matrices=False)
    rank = np.count_nonzero(sizes > ROUNDING * max(sizes[:1], default=0.0))
    directions: FloatArray = left[:, :rank] * np.sqrt(len(b))
    return directions


def _solve_by_cvxpy(a: FloatArray, penalty: float | None, solver: str) -> FloatArray:
    """Minimise Σ (n·q − 1)²/n. Σ q_i·a_i = 0 is a condition or, with a penalty, part of the cost.

    Raises:
        Unsolved: the solver failed, or its weights miss a mean.
    """
    cp = cvxpy_module()

    n, d = a.shape
    if d == 0:
        return np.full(n, 1 / n)
    w = cp.Variable(n, nonneg=True)  # w = n·q has the sum n, so Σ (w − 1)² = Σ w² − n
    means = a.T @ w / n
    cost, conditions = cp.sum_squares(w) / n, [cp.sum(w) == n]
    if penalty is None:
        conditions.append(means == 0)
    else:
        cost += penalty * cp.sum_squares(means)
    problem = cp.Problem(cp.Minimize(cost), conditions)
    with warnings.catch_warnings():  # the status is checked below
        warnings.simplefilter("ignore")
        try:
            problem.solve(solver=solver, **_SOLVERS[solver])
        except (cp.error.SolverError, ArithmeticError, ValueError) as error:
            raise Unsolved(f"{type(error).__name__}: {error}") from None
    if problem.status != cp.OPTIMAL or w.value is None:
        raise Unsolved(f"its status is {problem.status}")
    q: FloatArray = np.where(w.value < _ZERO, 0.0, w.value)
    q /= q.sum()
    missed = np.abs(q @ a).max()
    if penalty is None and missed > _MEAN_TOLERANCE:
        raise Unsolved(f"its weights miss a mean by {missed:.1g}")
    return q


def _solve_by_newton(a: FloatArray, steps: int) -> FloatArray:
    """Return q_i ∝ exp(λᵀa_i) with Σ q_i·a_i = 0, by Newton's method on the dual log Σ exp(λᵀa_i).

    If μ is on the border of the hull, λ goes to infinity and some q go to 0. They decrease
    exponentially with the steps, so a few dozen steps suffice.

    Raises:
        Unsolved: no step improves the means, or they are not met after `steps` steps.
    """
    n, d = a.shape
    multipliers, q, value = np.zeros(d), np.full(n, 1 / n), np.log(n)
    for _ in range(steps):
        gradient = q @ a
        missed = np.abs(gradient).max(initial=0.0)
        if missed < _NEWTON_TOLERANCE:
            return q
        hessian = (a.T * q) @ a - np.outer(gradient, gradient)
        step = np.linalg.lstsq(hessian, gradient, rcond=1e-15)[0]
        size = 1.0
        while True:
            tried = multipliers - size * step
            tried_q, tried_value = _tilt(a, tried)
            better = tried_value <= value - 1e-4 * size * (gradient @ step)
            if better or np.abs(tried_q @ a).max() < missed / 2:
                break
            size /= 2
            if size < 1e-10:
                raise Unsolved(f"no step brings the means nearer than {missed:.1g}")
        multipliers, q, value = tried, tried_q, tried_value
    raise Unsolved(f"after {steps} steps the means are still {missed:.1g} off")


def _tilt(a: FloatArray, multipliers: FloatArray) -> tuple[FloatArray, float]:
    """Return q ∝ exp(λᵀa), and log Σ exp(λᵀa)."""
    exponents = a @ multipliers
    largest = exponents.max()  # subtracted, so that exp does not overflow
    powers = np.exp(exponents - largest)
    total = powers.sum()
    return powers / total, float(largest + np.log(total))
