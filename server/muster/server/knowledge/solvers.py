"""Solvers of convex problems: cvxpy; and for the simplex of weights, whose sum is 1, projection
onto it and quadratic problems over it."""

from typing import Any

import numpy as np

from muster.common.seeds import FloatArray

_STEPS = 20_000
_CLOSE = 1e-12
"""Steps of the descent at most, and the change of weights below which it ends."""


def projected(point: FloatArray) -> FloatArray:
    """The nearest point of the simplex, shape (N,).

    Held, Wolfe, Crowder, Validation of subgradient optimization, Mathematical Programming 6 (1974).
    """
    descending = np.sort(point)[::-1]
    shifts = (np.cumsum(descending) - 1) / np.arange(1, len(point) + 1)
    positive = int(np.count_nonzero(descending > shifts))
    return np.asarray(np.maximum(point - shifts[positive - 1], 0.0))


def least_quadratic(matrix: FloatArray, linear: FloatArray, start: FloatArray) -> FloatArray:
    """The weights p that minimise ½·pᵀQp + qᵀp over the simplex, shape (N,), by accelerated
    projected gradient descent for strongly convex functions.

    Nesterov, Lectures on Convex Optimization, 2018, section 2.2.4 (constant step, scheme III).

    Args:
        matrix: Q, symmetric and positive definite, shape (N, N).
        linear: q, shape (N,).
        start: weights from which the descent begins; the result depends on them by rounding alone.
    """
    curvatures = np.linalg.eigvalsh(matrix)
    least, most = float(curvatures[0]), float(curvatures[-1])
    momentum = (np.sqrt(most) - np.sqrt(least)) / (np.sqrt(most) + np.sqrt(least))
    weights = ahead = np.asarray(start)
    for _ in range(_STEPS):
        following = projected(ahead - (matrix @ ahead + linear) / most)
        moved = float(np.abs(following - weights).max())
        ahead = following + momentum * (following - weights)
        weights = following
        if moved < _CLOSE:
            break
    return weights


def cvxpy_module() -> Any:
    """Import cvxpy here, because most runs never need it. It has no usable types, hence Any."""
    import cvxpy

    return cvxpy
