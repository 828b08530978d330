"""Means of a few numbers, with confidence intervals by Student's t.

With three seeds, the interval is 4.3 standard errors wide on either side, not 1.96.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit  # type: ignore[import-untyped]

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and its confidence interval.

    Attributes:
        n: count of finite numbers.
        mean: their mean; NaN without numbers.
        half: half the width of the confidence interval; NaN with fewer than two numbers.
    """

    n: int
    mean: float
    half: float


def interval(values: Iterable[float], level: float = LEVEL) -> Interval:
    """Mean of the finite `values` with its two-sided interval of confidence `level`."""
    measured = [float(value) for value in values if math.isfinite(value)]
    n = len(measured)
    if not n:
        return Interval(0, math.nan, math.nan)
    mean = float(np.mean(measured))
    if n == 1:
        return Interval(1, mean, math.nan)
    quantile = float(stdtrit(n - 1, (1 + level) / 2))
    return Interval(n, mean, quantile * float(np.std(measured, ddof=1)) / math.sqrt(n))
