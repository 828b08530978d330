"""Overlap of propensities: whether devices are nearly left out, and what weighting costs."""

import numpy as np
from numpy.typing import ArrayLike

from muster.common.seeds import BoolArray

_QUANTILES = {"min": 0, "p01": 0.01, "p05": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "max": 1}


def overlap(propensities: ArrayLike, enrolled: BoolArray | None = None) -> dict[str, float]:
    """Measures of the overlap of propensities.

    Args:
        propensities: in [0, 1], shape (n,).
        enrolled: the devices that get weights 1/propensity; None: all with a propensity above 0.

    Returns:
        Quantiles of all propensities (min, p01, p05, p25, median, p75, max), and as
        `effective_share` the effective sample size (Σ w)² / Σ w² of those weights, as a share of
        the devices that have a weight (Kish 1965); 0 if no device has one.
    """
    all_of_them = np.asarray(propensities, dtype=np.float64)
    weighed = all_of_them[all_of_them > 0 if enrolled is None else enrolled]
    values = np.quantile(all_of_them, list(_QUANTILES.values()))
    # Scaled by the smallest propensity, so that squares of huge weights stay finite.
    weights = weighed.min(initial=1.0) / weighed
    share = weights.sum() ** 2 / (weights**2).sum() / len(weights) if len(weights) else 0.0
    return {**dict(zip(_QUANTILES, values.tolist(), strict=True)), "effective_share": float(share)}
