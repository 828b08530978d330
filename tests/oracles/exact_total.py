"""Exact weighted sums by integers, to check those that the server computes in floating point.

docs/decisions/exact-sums.md defines the sum: the product of each entry and its weight is
rounded to float64, then to a multiple of 2^-84, and the rest is dropped. These multiples are whole
numbers, which are added here as three integers of 64 bits for each entry. The server adds the same
numbers with error-free transformations instead.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from muster.common.seeds import FloatArray
from muster.common.tensors import Vector

_EXPONENTS = (20, 52, 84)
"""The integers count multiples of 2^-20, 2^-52 and 2^-84. Each stays below 2^52, because sums are
exact only while Σ |w·x| is below 2^31 and there are at most 2^20 terms."""

_PIECE = 32
"""Bits between the second and the third integer."""


class ExactTotal:
    """Σ w·x over float32 vectors of one length."""

    def __init__(self, parameters: int) -> None:
        self._counts: npt.NDArray[np.int64] = np.zeros((len(_EXPONENTS), parameters), np.int64)

    def add(self, vector: Vector, weight: float, times: int = 1) -> None:
        """Add weight·vector; with times = −1, subtract exactly what was added with 1."""
        rest = vector.astype(np.float64) * weight
        for counts, exponent in zip(self._counts, _EXPONENTS, strict=True):
            pieces = np.rint(np.ldexp(rest, exponent))
            counts += times * pieces.astype(np.int64)
            rest = rest - np.ldexp(pieces, -exponent)

    def value(self) -> FloatArray:
        """The sum in float64, shape (parameters,).

        The multiple of 2^-52 below the sum is rounded to float64, and what that rounding and the
        multiples of 2^-84 leave is added to it.
        """
        coarse, middle, fine = self._counts
        carry = fine >> _PIECE
        above = np.ldexp(coarse.astype(np.float64), -_EXPONENTS[0])
        below = np.ldexp((middle + carry).astype(np.float64), -_EXPONENTS[1])
        left = np.ldexp((fine - (carry << _PIECE)).astype(np.float64), -_EXPONENTS[2])
        high = above + below
        # fsum is exact before its one rounding, and this difference needs none.
        parts = zip(above.tolist(), below.tolist(), (-high).tolist(), strict=True)
        low = np.fromiter(map(math.fsum, parts), np.float64, len(high))
        return np.asarray(high + (low + left))


def exact_sum_of(
    vectors: Sequence[Vector], weights: Sequence[float], parameters: int
) -> FloatArray:
    """Return Σ w·x in float64, shape (parameters,)."""
    total = ExactTotal(parameters)
    for vector, weight in zip(vectors, weights, strict=True):
        total.add(vector, weight)
    return total.value()
