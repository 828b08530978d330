"""Weights of the enrolled whose means are the population's: q >= 0, Σ q = 1, Σ q_i·b_i = μ.

    quadratic   the q nearest to equal weights: min ‖n·q − 1‖². Some may be 0, exactly
    entropy     q_i in proportion to exp(λᵀb_i). None is 0
    soft        as quadratic, with means that are only approached; there is always an answer

FedIPW (Who Trains Matters), section 5 and appendix C: equations (17) and (18), where (18) forgets
q >= 0. Deville, Särndal, Calibration estimators in survey sampling, JASA 87 (1992): which distance
from equal weights is taken matters little, where the means suffice to tell who is missing. Where
they do not, any of them can be worse than equal weights, quadratic sooner than entropy.

There are weights exactly where μ is in the convex hull of the b_i (assumption C.1). What a solver
fails at is solved by the next; `CalibrationResult` says by whom.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from muster.common.errors import ConfigError
from muster.common.seeds import FloatArray

Method = Literal["quadratic", "entropy", "soft"]

# In the order in which they are asked. SCS: the linear solver that every build of it has.
_SOLVERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "CLARABEL": {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10},
    "OSQP": {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iter": 100_000},
    "SCS": {"eps": 1e-9, "max_iters": 100_000, "use_indirect": False},
}

_STEPS = 200

_MET = 1e-7
"""How far a weighted mean may lie from the one asked for, in root mean squares of b − μ."""

_NOTHING = 1e-6
"""n·q below it are 0: where q >= 0 binds, solvers leave some 1e-10 of either sign. Among such
devices alone their proportions, which are rounding, would decide a whole round."""

_MET_BY_NEWTON = 1e-10

_INSIDE = 1e-8
"""How far outside of what weights can reach a mean still counts as reached, as a share of the
largest |b − μ|: linear programs are solved that well."""

_SAME = 1e-10
"""A direction in which b − μ is this much smaller than in the first holds rounding alone."""


class Unsolved(ArithmeticError):
    """No weights were found; says why."""


class CalibrationResult(NamedTuple):
    """Weights of n devices.

    Attributes:
        q: >= 0, with the sum 1, shape (n,).
        method: by which they were found in the end.
        solver: CLARABEL, OSQP, SCS or Newton; "none" where equal weights do.
        residuals: Σ q_i·b_i − μ, shape (d,).
        fallen_back: what was tried before and why it was left, a sentence each.
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
    """Weights by a method's name.

    Args:
        b: b(Z) of the enrolled, shape (n, d), n > 0.
        target: μ, shape (d,).
        penalty: as of `soft`.
        if_infeasible: what to do where no weights have these means.
        names: of the d moments, for messages.

    Raises:
        ConfigError: no weights have these means, and this is to be refused; or no solver found
            them.
    """
    try:
        if method == "soft":
            return soft(b, target, penalty)
        distance, reached = _nearest(b, target)
        if distance > _INSIDE:
            told = _unreachable(b, target, reached, names)
            if if_infeasible == "refuse":
                raise ConfigError(
                    f"{told}. Leave such means out, take coarser features of Z, or allow means "
                    f"that are only approached (if_infeasible or method = 'soft')"
                )
            found = soft(b, target, penalty)
            return found._replace(fallen_back=[f"{method}: {told}", *found.fallen_back])
        aim = target if distance < _SAME else reached  # a rounding outside is met by the border
        found = quadratic(b, aim) if method == "quadratic" else entropy(b, aim)
        return found._replace(residuals=found.q @ b - target)
    except Unsolved as error:
        raise ConfigError(f"no weights were found for the enrolled: {error}") from None


def quadratic(b: FloatArray, target: FloatArray) -> CalibrationResult:
    """min ‖n·q − 1‖² over q >= 0, Σ q = 1, Σ q_i·b_i = μ; by entropy where no solver can.

    Args: as `calibrate`.

    Raises:
        Unsolved: no solver found weights; there are none, as a rule.
    """
    a = _directions(b, target)
    return _first_of([*_by_solvers("quadratic", a), _by_newton(a)], b, target)


def entropy(b: FloatArray, target: FloatArray) -> CalibrationResult:
    """max −Σ q·log q over Σ q = 1, Σ q_i·b_i = μ: q_i ∝ exp(λᵀb_i); quadratic where Newton fails.

    Args: as `calibrate`.

    Raises:
        Unsolved: no solver found weights; there are none, as a rule.
    """
    a = _directions(b, target)
    return _first_of([_by_newton(a), *_by_solvers("quadratic", a)], b, target)


def soft(b: FloatArray, target: FloatArray, penalty: float = 100.0) -> CalibrationResult:
    """min ‖n·q − 1‖²/n + penalty · Σ_j ((Σ q_i·b_ij − μ_j) / sd_j)² over q >= 0, Σ q = 1.

    Args: as `calibrate`, and
        penalty: > 0. With sd the standard deviation of b over the enrolled, weights that move one
            mean by m·sd cost m², so that 1 / (1 + penalty) of its distance remains while no q is 0.

    Raises:
        Unsolved: no solver found weights.
    """
    a, spread = _checked(b, target), b.std(axis=0)
    spread[spread <= _SAME * np.abs(b).max(axis=0)] = 1.0
    return _first_of(_by_solvers("soft", a / spread, penalty), b, target)


def feasible(b: FloatArray, target: FloatArray, tolerance: float = _INSIDE) -> bool:
    """Whether μ is in the convex hull of the rows of b.

    Args:
        b, target: as of `calibrate`.
        tolerance: how far outside still counts, as a share of the largest |b_ij − μ_j| of every j.
    """
    return _nearest(b, target)[0] <= tolerance


_Attempt = tuple[Method, str, Callable[[], FloatArray]]


def _first_of(attempts: Sequence[_Attempt], b: FloatArray, target: FloatArray) -> CalibrationResult:
    """The weights of the first attempt that comes to its end."""
    fallen_back = list[str]()
    for method, solver, solve in attempts:
        try:
            q = solve()
        except Unsolved as error:
            fallen_back.append(f"{method} by {solver}: {error}")
        else:
            return CalibrationResult(q, method, solver, q @ b - target, fallen_back)
    raise Unsolved("; ".join(fallen_back))


def _by_newton(a: FloatArray) -> _Attempt:
    return "entropy", "Newton", partial(_tilted, a)


def _by_solvers(method: Method, a: FloatArray, penalty: float | None = None) -> list[_Attempt]:
    return [(method, solver, partial(_solved, a, penalty, solver)) for solver in _SOLVERS]


def _checked(b: FloatArray, target: FloatArray) -> FloatArray:
    """b − μ, shape (n, d)."""
    if b.ndim != 2 or not len(b) or target.shape != b.shape[1:]:
        raise ValueError(f"b of shape {b.shape} and a target of shape {target.shape}")
    a = b - target
    if not np.isfinite(a).all():
        raise ValueError("a moment, or what it is the mean of, is not finite")
    return a


def _scaled(b: FloatArray, target: FloatArray) -> FloatArray:
    """b − μ with the largest entry of every column 1, so that units decide nothing; 0 in a column
    where it is but a rounding of b."""
    a = _checked(b, target)
    largest = np.abs(a).max(axis=0)
    differs = largest > _SAME * np.abs(b).max(axis=0)
    scaled: FloatArray = np.where(differs, a, 0.0) / np.where(differs, largest, 1.0)
    return scaled


def _directions(b: FloatArray, target: FloatArray) -> FloatArray:
    """Uncorrelated columns a of which Σ q_i·a_i = 0 says the same as Σ q_i·b_i = μ, of mean square
    1, shape (n, rank): none for columns that say what others do."""
    left, sizes, _ = np.linalg.svd(_scaled(b, target), full_matrices=False)
    rank = np.count_nonzero(sizes > _SAME * max(sizes[:1], default=0.0))
    directions: FloatArray = left[:, :rank] * np.sqrt(len(b))
    return directions


def _cvxpy() -> Any:
    """cvxpy, whose types do not say what it has; only here, since most runs never need it."""
    import cvxpy

    return cvxpy


def _solved(a: FloatArray, penalty: float | None, solver: str) -> FloatArray:
    """min Σ (n·q − 1)²/n, with Σ q_i·a_i = 0 or, given a penalty, with it as a cost."""
    cp = _cvxpy()

    n, d = a.shape
    if d == 0:
        return np.full(n, 1 / n)
    w = cp.Variable(n, nonneg=True)  # n·q, whose sum is n: Σ (w − 1)² is Σ w² − n
    means = a.T @ w / n
    cost, conditions = cp.sum_squares(w) / n, [cp.sum(w) == n]
    if penalty is None:
        conditions.append(means == 0)
    else:
        cost += penalty * cp.sum_squares(means)
    problem = cp.Problem(cp.Minimize(cost), conditions)
    with warnings.catch_warnings():  # the status is looked at
        warnings.simplefilter("ignore")
        try:
            problem.solve(solver=solver, **_SOLVERS[solver])
        except (cp.error.SolverError, ArithmeticError, ValueError) as error:
            raise Unsolved(f"{type(error).__name__}: {error}") from None
    if problem.status != cp.OPTIMAL or w.value is None:
        raise Unsolved(f"its status is {problem.status}")
    q: FloatArray = np.where(w.value < _NOTHING, 0.0, w.value)
    q /= q.sum()
    missed = np.abs(q @ a).max()
    if penalty is None and missed > _MET:
        raise Unsolved(f"its weights miss a mean by {missed:.1g}")
    return q


def _tilted(a: FloatArray) -> FloatArray:
    """q_i ∝ exp(λᵀa_i) with Σ q_i·a_i = 0, by Newton's method on the dual log Σ exp(λᵀa_i).

    Where μ is on the border of the hull λ goes to infinity and some q to 0: as exponentials of the
    steps, so a few dozen of these do.
    """
    n, d = a.shape
    multipliers, q, value = np.zeros(d), np.full(n, 1 / n), np.log(n)
    for _ in range(_STEPS):
        gradient = q @ a
        missed = np.abs(gradient).max(initial=0.0)
        if missed < _MET_BY_NEWTON:
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
    raise Unsolved(f"after {_STEPS} steps the means are still {missed:.1g} off")


def _tilt(a: FloatArray, multipliers: FloatArray) -> tuple[FloatArray, float]:
    """q ∝ exp(λᵀa), and log Σ exp(λᵀa)."""
    powers = a @ multipliers
    largest = powers.max()
    raised = np.exp(powers - largest)
    total = raised.sum()
    return raised / total, float(largest + np.log(total))


def _nearest(b: FloatArray, target: FloatArray) -> tuple[float, FloatArray]:
    """How near to μ weights can bring the means, and those means, by a linear program.

    Returns:
        The largest |Σ q_i·b_ij − μ_j| of a j, as a share of the largest |b_ij − μ_j|; Σ q_i·b_i,
        shape (d,).
    """
    from scipy.optimize import linprog  # type: ignore[import-untyped]

    a = _scaled(b, target)
    n, d = a.shape
    if d == 0:
        return 0.0, np.zeros(0)
    # min t over q >= 0, t >= 0: −t <= Σ q_i·a_i <= t, Σ q = 1. It always has an answer.
    ones = np.ones((d, 1))
    found = linprog(
        np.append(np.zeros(n), 1.0),
        A_ub=np.block([[a.T, -ones], [-a.T, -ones]]),
        b_ub=np.zeros(2 * d),
        A_eq=np.append(np.ones(n), 0.0)[np.newaxis],
        b_eq=[1.0],
        method="highs",
        options={"primal_feasibility_tolerance": _SAME, "dual_feasibility_tolerance": _SAME},
    )
    if found.status != 0:
        raise Unsolved(f"whether there are any could not be decided: {found.message}")
    q = np.maximum(found.x[:n], 0.0)
    q /= q.sum()
    return float(np.abs(q @ a).max()), q @ b


def _unreachable(
    b: FloatArray, target: FloatArray, reached: FloatArray, names: Sequence[str]
) -> str:
    """Which means the enrolled cannot have, and what they can."""
    told = list(names) or [f"moment {place}" for place in range(len(target))]
    least, most = b.min(axis=0), b.max(axis=0)
    outside = [
        f"{told[j]} = {target[j]:.6g}, and theirs lie between {least[j]:.6g} and {most[j]:.6g}"
        for j in range(len(target))
        if not least[j] <= target[j] <= most[j]
    ]
    if outside:
        return f"no weights of the enrolled have the population's means: {'; '.join(outside)}"
    asked, nearest = (
        ", ".join(f"{name} = {value:.6g}" for name, value in zip(told, values, strict=True))
        for values in (target, reached)
    )
    return (
        f"no weights of the enrolled have the population's means together: {asked}; what comes "
        f"nearest is {nearest}"
    )
