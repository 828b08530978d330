"""Random parts of the delay of a direction."""

import math
from collections.abc import Callable, Mapping
from typing import Literal

from numpy.random import Generator

from muster.common.seeds import FloatArray

JitterDistribution = Literal["late", "normal", "uniform", "pareto"]


def _pareto(draws: Generator, size: int) -> FloatArray:
    """Pareto with exponent 3, mean 0 and standard deviation 1: the curve of netem's `pareto`, whose
    standard deviation is 2/√3 of what it is given, and which has an end."""
    return (draws.random(size) ** (-1 / 3) - 1.5) * (2 / math.sqrt(3))


_DRAWS: Mapping[JitterDistribution, Callable[[Generator, int], FloatArray]] = {
    "late": lambda draws, size: draws.standard_normal(size).clip(min=0.0),
    "normal": lambda draws, size: draws.standard_normal(size),
    "uniform": lambda draws, size: (2 * draws.random(size) - 1) * math.sqrt(3),
    "pareto": _pareto,
}


def delays(
    distribution: JitterDistribution, delay_s: float, jitter_s: float, draws: Generator, size: int
) -> FloatArray:
    """Random delays of a direction, seconds, at least 0."""
    return (delay_s + jitter_s * _DRAWS[distribution](draws, size)).clip(min=0.0)
