"""How far a solution of problem 7 of FedUCA is from the optimum, without solving the problem.

The objective ½‖max(t, 0)‖² + ½λ‖R − 1/N‖² is convex, and λ-strongly so. For λ > 0 the distance to
the optimum therefore follows from how well R satisfies the optimality conditions, with the prices
of the sums of rows and columns that suit R best; a linear program finds these. For λ = 0 there is
no distance, but the objective exceeds its optimum by at most the largest decrease of its
linearisation over the feasible matrices (the gap of Frank and Wolfe), another linear program.

Jaggi, Revisiting Frank-Wolfe, ICML 2013, section 2 (the gap).
"""

import math
from dataclasses import dataclass

import numpy as np

from muster.common.seeds import FloatArray


@dataclass(frozen=True)
class ProblemSeven:
    """Problem 7 of N devices.

    Attributes:
        curves: a, b, c and γ of each device, shape (N, 4).
        mixture: s, shape (n_s,).
        slack: ε.
        spread: λ.
    """

    curves: FloatArray
    mixture: FloatArray
    slack: float
    spread: float

    def scale(self) -> float:
        """The largest amount by which equal weights miss a threshold; 0 if they miss none."""
        equal = np.full((len(self.mixture), len(self.curves)), 1 / len(self.curves))
        return max(0.0, float(self._missing(equal).max()))

    def distance(self, matrix: FloatArray) -> float:
        """The Euclidean distance of α = Rᵀs from that of the optimum, at most, for λ > 0.

        With reduced gradients g and the optimum R*, λ‖R − R*‖² ≤ ⟨g, R − R*⟩. Of an entry of R* it
        is known that it is in [0, 1], so the gap is at most Σ max of g·d − ½λd² over R − 1 ≤ d ≤ R.
        """
        reduced = self._reduced(matrix)
        moves = np.clip(reduced / self.spread, matrix - 1, matrix)
        gap = float(np.sum(reduced * moves - 0.5 * self.spread * moves**2))
        return float(np.linalg.norm(self.mixture)) * math.sqrt(2 * gap / self.spread)

    def gap(self, matrix: FloatArray) -> float:
        """By how much the objective exceeds its optimum, at most. It imports scipy."""
        from scipy.optimize import linprog  # type: ignore[import-untyped]

        slope = self._gradient(matrix)
        sums, totals = self._sums(matrix.shape)
        scale = _scale(slope)
        lowest = linprog(slope.ravel() / scale, A_eq=sums, b_eq=totals)
        if lowest.status != 0:
            return math.inf
        return float(np.sum(slope * matrix) - lowest.fun * scale)

    def _reduced(self, matrix: FloatArray) -> FloatArray:
        """The gradient less the prices that make it 0 where R > 0 and nowhere negative, as nearly
        as any do: they minimise the sum of what is off. Infinite if there are none."""
        from scipy.optimize import linprog
        from scipy.sparse import eye, hstack  # type: ignore[import-untyped]

        slope = self._gradient(matrix)
        sums, _ = self._sums(matrix.shape)
        scale, entries = _scale(slope), matrix.size
        # slope = prices + above − below. An entry may be above as far as R is 0.
        cost = np.concatenate([np.zeros(len(sums)), matrix.ravel(), np.ones(entries)])
        whole = hstack([sums.T, eye(entries), -eye(entries)], format="csr")
        free, positive = [(None, None)] * len(sums), [(0, None)] * (2 * entries)
        fit = linprog(cost, A_eq=whole, b_eq=slope.ravel() / scale, bounds=free + positive)
        if fit.status != 0:
            return np.full_like(matrix, math.inf)
        prices = sums.T @ fit.x[: len(sums)] * scale
        return np.asarray(slope - prices.reshape(matrix.shape))

    def _missing(self, matrix: FloatArray) -> FloatArray:
        a, b, c, threshold = self.curves.T
        reached = self.mixture @ ((b - a * matrix) * matrix + c)
        return np.asarray(np.maximum(threshold + self.slack - reached, 0.0))

    def _gradient(self, matrix: FloatArray) -> FloatArray:
        a, b, _, _ = self.curves.T
        weighted = np.outer(self.mixture, self._missing(matrix))
        pull = self.spread * (matrix - 1 / len(self.curves))
        return np.asarray(pull - weighted * (b - 2 * a * matrix))

    def _sums(self, shape: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
        """The sums of rows, and with several strategies of columns, as a matrix; and their values.

        The columns' sums are free with one strategy."""
        count, clients = shape
        rows = np.kron(np.eye(count), np.ones(clients))
        if count == 1:
            return np.asarray(rows), np.ones(1)
        columns = np.kron(np.ones(count), np.eye(clients))
        totals = np.concatenate([np.ones(count), np.full(clients, count / clients)])
        return np.vstack([rows, columns]), totals


def _scale(slope: FloatArray) -> float:
    """The unit in which a gradient is handed to linear programs, whose tolerances are absolute."""
    return max(float(np.abs(slope).max()), float(np.finfo(float).tiny))
