"""Problem 7 of FedUCA: strategies, which are weights of all clients, whose mixture keeps as many
clients satisfied as possible.

It minimises ½‖t‖² + ½λ‖R − 1/N‖² over matrices R ≥ 0 of shape (n_s, N) and t ≥ 0, subject to
R·1 = 1, 1ᵀR = (n_s/N)·1ᵀ (dropped for n_s = 1), and Σ_i s_i·u_k(R_ik) ≥ γ_k + ε − t_k. The paper
has no second term; without it, the problem has many solutions.

Yashwanth et al., Federated Learning by Utility-Constrained Stochastic Aggregation for Improving
Rational Participation, 2026, problem 7. https://arxiv.org/abs/2605.18020
"""

import math
import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np

from muster.common.seeds import FloatArray
from muster.server.knowledge.solvers import cvxpy_module
from muster.server.knowledge.utilities import Utilities

REGULARIZATION: Final = 1e-4
"""λ unless it is set."""

ATTEMPTS: Final[tuple[tuple[str, Mapping[str, float]], ...]] = (
    ("CLARABEL", {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-10}),
    ("CLARABEL", {}),
    ("SCS", {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iters": 20_000}),
)
"""The solvers and their settings, in the order in which they are tried. The first is only for
λ > 0: without λ, Clarabel seldom reaches these tolerances."""

CERTIFIED: Final = 1e-8
"""The largest optimality gap of a solution with λ > 0, as a share of the objective at equal
weights. With λ = 1e-4 and 3 to 500 clients, the first attempt had 4e-16 to 3e-12 in the median and
more than this in 1 of 300 problems. α was then at most 4e-5 from the optimum, as a share of the
largest amount by which equal weights miss a threshold."""

_NO_SHORTFALL = 1e-12
"""Utilities that miss their thresholds by less do so by rounding."""

_LEAST_SCALE = 1e-6
"""The smallest unit of utility in which a problem is handed to a solver."""


class StrategyProblem(NamedTuple):
    """Problem 7.

    Attributes:
        mixture: s, shape (n_s,), > 0 with the sum 1.
        slack: ε.
        regularization: λ.
    """

    utilities: Utilities
    mixture: FloatArray
    slack: float = 0.0
    regularization: float = REGULARIZATION

    def equal(self) -> FloatArray:
        """R if every strategy is equal weights."""
        clients = len(self.utilities.a)
        return np.full((len(self.mixture), clients), 1 / clients)

    def missing(self, matrix: FloatArray) -> FloatArray:
        """γ + ε − Σ_i s_i·u(R_i), shape (N,). t is its positive part."""
        reached = self.mixture @ self.utilities.at(matrix)
        return np.asarray(self.utilities.threshold + self.slack - reached)

    def cost(self, matrix: FloatArray) -> float:
        """The objective for R, with the smallest t that satisfies the constraints."""
        short = np.maximum(self.missing(matrix), 0.0)
        spread = np.sum((matrix - self.equal()) ** 2)
        return float(0.5 * np.sum(short**2) + 0.5 * self.regularization * spread)

    def gradient(self, matrix: FloatArray) -> FloatArray:
        """The gradient of `cost`, in the shape of R."""
        short = np.maximum(self.missing(matrix), 0.0)
        slopes = self.utilities.b - 2 * self.utilities.a * matrix
        pull = self.regularization * (matrix - self.equal())
        return np.asarray(pull - np.outer(self.mixture, short) * slopes)

    def gap(self, matrix: FloatArray, rows: FloatArray, columns: FloatArray) -> float:
        """By how much the objective at R exceeds its minimum, at most.

        `cost` is convex, and λ-strongly so. So no feasible S costs less than
        cost(R) + ⟨∇, S − R⟩ + ½λ‖S − R‖². Prices of the sums of rows and columns may be subtracted
        from ∇, because S and R have the same sums; then the least value over 0 ≤ S ≤ 1 is known
        entry by entry. The bound holds for all prices. It is 0 if R and the prices satisfy the
        Karush–Kuhn–Tucker conditions.

        Args:
            rows, columns: the prices, shapes (n_s,) and (N,).
        """
        reduced = self.gradient(matrix) - rows[:, None] - columns
        if self.regularization > 0:
            moves = np.clip(reduced / self.regularization, matrix - 1, matrix)
        else:
            moves = np.where(reduced > 0, matrix, matrix - 1)
        return float(np.sum(reduced * moves - 0.5 * self.regularization * moves**2))


class Strategies(NamedTuple):
    """A solution of problem 7.

    Attributes:
        matrix: R, the weights of the n_s strategies, shape (n_s, N); rows have the sum 1.
        solver: CLARABEL or SCS; "none needed" if λ > 0 and equal weights satisfy every threshold.
        gap: by how much the objective exceeds its minimum, at most.
        fallen_back: one sentence for each attempt that failed before.
    """

    matrix: FloatArray
    solver: str
    gap: float = 0.0
    fallen_back: tuple[str, ...] = ()


def weight_error(problem: StrategyProblem, gap: float) -> float:
    """How far Rᵀs may be from that of the solution (Euclidean norm), for R with this gap; infinity
    without regularization, with which there may be many solutions."""
    if problem.regularization == 0:
        return math.inf
    return float(np.linalg.norm(problem.mixture)) * math.sqrt(2 * gap / problem.regularization)


def solve(problem: StrategyProblem) -> Strategies | tuple[str, ...]:
    """Solve problem 7.

    Returns:
        The solution, or one sentence for each attempt that failed. The problem always has a
        solution, so a failure is numerical. A solution counts if its `gap` certifies it, whatever
        the solver says about it. With λ = 0, where small errors of prices make the gap large, it
        counts if the solver calls it optimal.
    """
    equal = problem.equal()
    shortfall = float(problem.missing(equal).max())
    if problem.regularization > 0 and shortfall <= _NO_SHORTFALL:
        return Strategies(equal, "none needed")
    scale = max(shortfall, _LEAST_SCALE)
    largest = CERTIFIED * max(problem.cost(equal), 0.5 * scale**2)
    if problem.regularization == 0:
        largest = math.inf
    failures = list[str]()
    for solver, settings in ATTEMPTS if problem.regularization > 0 else ATTEMPTS[1:]:
        found = _attempt(problem, scale, solver, settings)
        if isinstance(found, str):
            failures.append(f"{solver}: {found}")
        elif found.gap > largest:
            over = f"{found.gap:.1e} above the minimum, and {largest:.1e} is allowed"
            failures.append(f"{solver}: its objective may be {over}")
        else:
            return found._replace(fallen_back=tuple(failures))
    return tuple(failures)


def _attempt(
    problem: StrategyProblem, scale: float, solver: str, settings: Mapping[str, float]
) -> Strategies | str:
    """Solve with one solver; what went wrong if it found nothing."""
    cp = cvxpy_module()
    program = _program(len(problem.mixture), len(problem.utilities.a))
    program.enter(problem, scale)
    with warnings.catch_warnings():  # `gap` says what the solution is worth
        warnings.simplefilter("ignore")
        try:
            # Otherwise the last bits would depend on what this process has solved before.
            program.problem.solve(solver=solver, warm_start=False, **settings)
        except (cp.error.SolverError, ArithmeticError, ValueError) as error:
            return f"{type(error).__name__}: {error}"
    trusted = problem.regularization > 0 or program.problem.status == cp.OPTIMAL
    if program.moves.value is None or not trusted:
        return f"its status is {program.problem.status}"
    matrix = np.maximum(problem.equal() + scale * program.moves.value, 0.0)
    matrix /= matrix.sum(axis=1, keepdims=True)
    rows, columns = (np.atleast_1d(-scale * sums.dual_value) for sums in program.sums)
    return Strategies(matrix, solver, problem.gap(matrix, rows, columns))


class _Program(NamedTuple):
    """Problem 7 as a cone program with parameters, which cvxpy compiles once.

    Its variables are X = (R − 1/N)/v and t/v, where v is the scale: the largest amount by which
    equal weights miss a threshold. Where thresholds are utilities of weights near 1/N, v is about
    1e-3 and the objective about 1e-9, which is less than the absolute tolerances of solvers.
    Scaled, it is not.
    """

    problem: Any
    moves: Any
    sums: tuple[Any, Any]
    curvature: Any
    slope: Any
    rest: Any
    least: Any
    root: Any

    def enter(self, problem: StrategyProblem, scale: float) -> None:
        """Set the parameters."""
        a, b, _, _ = problem.utilities
        equal = 1 / len(a)
        self.curvature.value = np.sqrt(np.outer(problem.mixture, a) * scale)
        self.slope.value = np.outer(problem.mixture, b - 2 * a * equal)
        self.rest.value = -problem.missing(problem.equal()) / scale
        self.least.value = -equal / scale
        self.root.value = math.sqrt(problem.regularization)


@cache
def _program(strategies: int, clients: int) -> _Program:
    cp = cvxpy_module()
    shape = strategies, clients
    moves, missing = cp.Variable(shape), cp.Variable(clients, nonneg=True)
    curvature, slope = cp.Parameter(shape, nonneg=True), cp.Parameter(shape)
    rest, least = cp.Parameter(clients), cp.Parameter()
    root = cp.Parameter(nonneg=True)
    # Σ_i s_i·a_k·v·X_ik² ≤ y_k is ‖(2·√(s_i·a_k·v)·X_ik, y_k − 1)‖ ≤ y_k + 1: all k in one
    # condition.
    room = cp.sum(cp.multiply(slope, moves), axis=0) + rest + missing
    scaled = 2 * cp.multiply(curvature, moves)
    norms = cp.vstack([scaled, cp.reshape(room - 1, (1, clients), order="C")])
    # One strategy may have any weights; its columns then sum to the variable itself.
    free = cp.Variable(clients) if strategies == 1 else np.zeros(clients)
    sums = cp.sum(moves, axis=1) == 0, cp.sum(moves, axis=0) == free
    conditions = [cp.SOC(room + 1, norms, axis=0), moves >= least, *sums]
    cost = 0.5 * cp.sum_squares(missing) + 0.5 * cp.sum_squares(root * moves)
    problem = cp.Problem(cp.Minimize(cost), conditions)
    return _Program(problem, moves, sums, curvature, slope, rest, least, root)
