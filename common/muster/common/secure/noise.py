"""Discrete Gaussian noise: whole numbers, of which those of several devices add up.

Canonne, Kamath, Steinke, The Discrete Gaussian for Differential Privacy, NeurIPS 2020.
https://arxiv.org/abs/2004.00010
"""

import math
from typing import Final

import numpy as np
import numpy.typing as npt

FEWEST_STEPS: Final = 4
"""The smallest standard deviation of a device's noise. A sum of n discrete Gaussians is not exactly
one: the bound of `muster.server.aggregation.accountant` leaves out, for each entry, the term
10·Σ_{k<n} exp(-2·π²·σ²·k/(k+1)) of the paper, which is below 10·n·exp(-π²·16) < n·10^-67."""

MOST_STEPS: Final = 2**48
"""The largest standard deviation: draws are made of float64, which have 53 bits."""

TAIL: Final = 12
"""Standard deviations for which a sum has room. The chance that a Gaussian exceeds them is below
10^-32."""


def discrete_gaussian(
    deviation: float, size: int, draws: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Draw whole numbers k with probabilities proportional to exp(-k²/(2·deviation²)), by
    algorithm 3 of the paper: discrete Laplace numbers, of which some are rejected."""
    scale = math.floor(deviation) + 1
    found: list[npt.NDArray[np.int64]] = []
    missing = size
    while missing:
        up, down = (draws.geometric(-math.expm1(-1 / scale), missing) for _ in range(2))
        laplace = up - down
        off = (np.abs(laplace) - deviation**2 / scale) / deviation
        found.append(laplace[draws.random(missing) < np.exp(-(off**2) / 2)])
        missing -= len(found[-1])
    return np.concatenate(found) if found else np.zeros(0, np.int64)
