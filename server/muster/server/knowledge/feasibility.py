"""The feasibility of calibration: do weights q >= 0 with Σ q = 1 and Σ q_i·b_i = μ exist, and how
near to μ can weighted means come?

Such weights exist exactly if μ is in the convex hull of the b_i (FedIPW, assumption C.1). A linear
program decides it.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from muster.common.seeds import FloatArray

HULL_TOLERANCE: Final = 1e-8
"""How far outside the hull μ may lie and still count as reached, as a share of the largest |b − μ|.
Linear programs are solved to about this precision."""

ROUNDING: Final = 1e-10
"""A direction in which b − μ is smaller than this share of its largest direction holds only
rounding errors."""


class Unsolved(ArithmeticError):
    """No weights were found; the message says why."""


def feasible(b: FloatArray, target: FloatArray, tolerance: float = HULL_TOLERANCE) -> bool:
    """Return whether μ is in the convex hull of the rows of b.

    Args:
        b: shape (n, d), n > 0.
        target: μ, shape (d,).
        tolerance: how far outside still counts, as a share of the largest |b_ij − μ_j| of every j.
    """
    return nearest_means(b, target)[0] <= tolerance


def nearest_means(b: FloatArray, target: FloatArray) -> tuple[float, FloatArray]:
    """Return the weighted means that come nearest to μ, and their distance to it.

    Returns:
        The largest |Σ q_i·b_ij − μ_j| over j, as a share of the largest |b_ij − μ_j|, and
        Σ q_i·b_i, shape (d,).

    Raises:
        Unsolved: the linear program failed.
    """
    from scipy.optimize import linprog  # type: ignore[import-untyped]

    a = scaled_differences(b, target)
    n, d = a.shape
    if d == 0:
        return 0.0, np.zeros(0)
    # min t over q >= 0, t >= 0: −t <= Σ q_i·a_i <= t, Σ q = 1. It always has a solution.
    ones = np.ones((d, 1))
    found = linprog(
        np.append(np.zeros(n), 1.0),
        A_ub=np.block([[a.T, -ones], [-a.T, -ones]]),
        b_ub=np.zeros(2 * d),
        A_eq=np.append(np.ones(n), 0.0)[np.newaxis],
        b_eq=[1.0],
        method="highs",
        options={"primal_feasibility_tolerance": ROUNDING, "dual_feasibility_tolerance": ROUNDING},
    )
    if found.status != 0:
        raise Unsolved(f"whether there are any could not be decided: {found.message}")
    q = np.maximum(found.x[:n], 0.0)
    q /= q.sum()
    return float(np.abs(q @ a).max()), q @ b


def describe_infeasible(
    b: FloatArray, target: FloatArray, reached: FloatArray, names: Sequence[str]
) -> str:
    """Say which means no weights of the enrolled devices have, and which are possible.

    Args:
        reached: the means that come nearest to μ, shape (d,).
        names: the names of the d moments; they may be empty.
    """
    labels = list(names) or [f"moment {place}" for place in range(len(target))]
    least, most = b.min(axis=0), b.max(axis=0)
    outside = [
        f"{labels[j]} = {target[j]:.6g}, and theirs lie between {least[j]:.6g} and {most[j]:.6g}"
        for j in range(len(target))
        if not least[j] <= target[j] <= most[j]
    ]
    if outside:
        return f"no weights of the enrolled have the population's means: {'; '.join(outside)}"
    wanted, nearest = (
        ", ".join(f"{label} = {value:.6g}" for label, value in zip(labels, values, strict=True))
        for values in (target, reached)
    )
    return (
        f"no weights of the enrolled have the population's means together: {wanted}; the nearest "
        f"that they can have is {nearest}"
    )


def differences(b: FloatArray, target: FloatArray) -> FloatArray:
    """Return b − μ, shape (n, d).

    Raises:
        ValueError: the shapes do not fit, n is 0, or an entry is not finite.
    """
    if b.ndim != 2 or not len(b) or target.shape != b.shape[1:]:
        raise ValueError(f"b of shape {b.shape} and a target of shape {target.shape}")
    a = b - target
    if not np.isfinite(a).all():
        raise ValueError("a moment, or a value that it is the mean of, is not finite")
    return a


def scaled_differences(b: FloatArray, target: FloatArray) -> FloatArray:
    """Return b − μ, with every column divided by its largest entry so that units do not matter. A
    column that is only a rounding error of b is 0."""
    a = differences(b, target)
    largest = np.abs(a).max(axis=0)
    differs = largest > ROUNDING * np.abs(b).max(axis=0)
    scaled: FloatArray = np.where(differs, a, 0.0) / np.where(differs, largest, 1.0)
    return scaled
