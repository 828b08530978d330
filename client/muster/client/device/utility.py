"""The utility of a model for a device as a function of the device's weight in it.

Yashwanth et al., Federated Learning by Utility-Constrained Stochastic Aggregation for Improving
Rational Participation, 2026, eq. 3 and 4. https://arxiv.org/abs/2605.18020
"""

from typing import Final

import numpy as np

from muster.common.seeds import FloatArray
from muster.common.tensors import Vector

LEAST_CURVATURE: Final = 1e-2
"""The smallest a of a fitted curve, so that it is strictly concave. The paper names none."""

_WHOLE: Final = 1 - 1e-9
"""A weight from which on the model has no other part."""


def without(model: Vector, contribution: Vector, weight: float) -> Vector:
    """Return the model without a device: (θ − α·m) / (1 − α), float32, shape (parameters,).

    Args:
        model: θ.
        contribution: m, the device's part in θ = Σ α_k·m_k.
        weight: α. If it is 1 there is no other part, and the model is returned.
    """
    if weight > _WHOLE:
        return model
    theta, own = model.astype(np.float64), contribution.astype(np.float64)
    return ((theta - weight * own) / (1 - weight)).astype(np.float32)


def fitted(weights: FloatArray, utilities: FloatArray) -> tuple[float, float, float]:
    """Return (a, b, c) of −a·r² + b·r + c, the least-squares fit with a >= LEAST_CURVATURE.

    Args:
        weights: at least three different values of r, shape (points,).
        utilities: shape (points,).
    """
    r = np.asarray(weights, np.float64)
    a, b, c = np.linalg.lstsq(np.stack([-(r**2), r, np.ones_like(r)], 1), utilities)[0]
    if a < LEAST_CURVATURE:
        a = LEAST_CURVATURE
        straight = np.stack([r, np.ones_like(r)], 1)
        b, c = np.linalg.lstsq(straight, utilities + a * r**2)[0]
    return float(a), float(b), float(c)


def r_squared(measured: FloatArray, curve: FloatArray) -> float | None:
    """Return R² = 1 − Σ (measured − curve)² / Σ (measured − mean)², at most 1 and maybe negative;
    None if all measured values are the same. Both have shape (points,)."""
    if np.ptp(measured) == 0:  # the mean of equal values may differ from them by a rounding error
        return None
    spread = float(np.sum((measured - measured.mean()) ** 2))
    return 1 - float(np.sum((measured - curve) ** 2)) / spread
