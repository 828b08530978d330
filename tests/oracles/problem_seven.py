"""The optimum of problem 7 of FedUCA by active sets, for λ > 0 and small problems.

The objective ½‖max(t, 0)‖² + ½λ‖R − 1/N‖² is convex and once differentiable, so Newton's method
with a line search finds its minimum. Every step is a quadratic program over R ≥ 0 with fixed sums
of rows and columns, which is solved by active sets. No library of solvers is used, and nothing of
the server.

Nocedal, Wright, Numerical Optimization, 2006, algorithms 16.3 (active sets) and 18.3.
"""

from typing import NamedTuple

import numpy as np

from muster.common.seeds import BoolArray, FloatArray


class Problem(NamedTuple):
    """Attributes: curves: a, b, c and γ of each client, shape (N, 4); mixture: s; spread: λ."""

    curves: FloatArray
    mixture: FloatArray
    slack: float
    spread: float

    def short(self, matrix: FloatArray) -> FloatArray:
        """By how much the mixture of utilities misses each threshold, shape (N,); >= 0."""
        a, b, c, threshold = self.curves.T
        reached = self.mixture @ ((b - a * matrix) * matrix + c)
        return np.asarray(np.maximum(threshold + self.slack - reached, 0.0))

    def cost(self, matrix: FloatArray) -> float:
        apart = np.sum((matrix - 1 / matrix.shape[1]) ** 2)
        return float(0.5 * np.sum(self.short(matrix) ** 2) + 0.5 * self.spread * apart)

    def derivatives(self, matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The gradient, shape (n_s·N,), and a generalised Hessian, for R in C order."""
        a, b, _, _ = self.curves.T
        count, clients = matrix.shape
        short = self.short(matrix)
        steep = -self.mixture[:, None] * (b - 2 * a * matrix)
        gradient = short * steep + self.spread * (matrix - 1 / clients)
        hessian = self.spread * np.eye(count * clients)
        for k in np.flatnonzero(short > 0):
            own = np.ix_(*[np.arange(count) * clients + k] * 2)
            hessian[own] += np.outer(steep[:, k], steep[:, k])
            hessian[own] += short[k] * 2 * a[k] * np.diag(self.mixture)
        return np.asarray(gradient.ravel(), dtype=np.float64), hessian


def optimum(problem: Problem) -> FloatArray:
    """R, shape (n_s, N)."""
    count, clients = len(problem.mixture), len(problem.curves)
    sums = np.asarray(np.kron(np.eye(count), np.ones(clients)), dtype=np.float64)
    if count > 1:  # the last column's sum follows from the others
        sums = np.vstack([sums, np.kron(np.ones(count), np.eye(clients))[:-1]])
    matrix = np.full((count, clients), 1 / clients)
    bound = np.zeros(matrix.size, bool)
    for _ in range(200):
        gradient, hessian = problem.derivatives(matrix)
        step, bound = _least_step(hessian, gradient, sums, matrix.ravel(), bound)
        fall, length = -float(gradient @ step), 1.0
        moved = step.reshape(matrix.shape)
        while problem.cost(matrix + length * moved) > problem.cost(matrix) - 1e-4 * length * fall:
            length /= 2
            if length < 1e-10:
                return matrix
        matrix = np.maximum(matrix + length * moved, 0.0)
        if length * np.abs(step).max() < 1e-14:
            break
    return matrix


def _least_step(
    hessian: FloatArray, gradient: FloatArray, sums: FloatArray, start: FloatArray, bound: BoolArray
) -> tuple[FloatArray, BoolArray]:
    """The step p that minimises ½pᵀHp + gᵀp with start + p ≥ 0 and sums·p = 0, and the entries that
    it leaves at 0, from a guess of these."""
    step, bound = np.zeros_like(start), bound & (start <= 0)
    zeros = np.zeros((len(sums), len(sums)))
    for _ in range(5000):
        free = np.flatnonzero(~bound)
        system = np.block([[hessian[np.ix_(free, free)], sums[:, free].T], [sums[:, free], zeros]])
        slope = gradient + hessian @ step
        right = np.concatenate([-slope[free], np.zeros(len(sums))])
        solution = np.linalg.lstsq(system, right, rcond=1e-14)[0]
        way = np.zeros_like(start)
        way[free] = solution[: len(free)]
        if np.abs(way).max() < 1e-14:
            pushes = np.where(bound, slope + sums.T @ solution[len(free) :], 0.0)
            if pushes.min() >= -1e-13 * max(1.0, np.abs(gradient).max()):
                return step, bound
            bound[pushes.argmin()] = False
            continue
        falling = (way < 0) & ~bound
        room = np.full_like(start, np.inf)
        room[falling] = -(start + step)[falling] / way[falling]
        length = min(1.0, max(0.0, float(room.min())))
        step = step + length * way
        if length < 1.0:
            bound[room.argmin()] = True
    raise AssertionError("the active sets did not settle")
