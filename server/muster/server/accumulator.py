"""Exact weighted sums of vectors: any order, any split, any replay gives the same bits.

Every term is cut into three pieces that lie on fixed grids (2^-20, 2^-52, 2^-84), and each grid has
a float64 sum of its own. Sums on a grid are exact while the total of |w x| stays below 2^32 and the
terms below 2^22, so they do not depend on the order. What is left below 2^-85 is dropped from each
term alone, the same way in any order.

Error-free extraction: Rump, Ogita, Oishi, Accurate floating-point summation, SIAM J. Sci. Comput.
31 (2008); reproducible on fixed grids: Demmel, Nguyen, Fast reproducible floating-point summation,
ARITH 2013. 24 bytes per parameter.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from muster.common.errors import Diverged
from muster.common.tensors import Vector

GRIDS = (-20, -52, -84)
RANGE = 2.0**32
TERMS = 1 << 22

# Adding and subtracting 1.5·2^(52+e) rounds x to the grid 2^e, because there the spacing of float64
# is 2^e; the difference from x is exact.
_MAGNETS = [1.5 * 2.0 ** (52 + exponent) for exponent in GRIDS]

_any_bit, _largest, _least = np.bitwise_or.reduce, np.maximum.reduce, np.minimum.reduce

BLOCK = 16_384
"""Entries worked on at once: a block's sums and what is added to them, 640 KiB, stay cached."""

Doubles = npt.NDArray[np.float64]
ReadBlock = Callable[[int, int], Vector]
"""`read(start, stop)` returns entries [start, stop) of a vector."""


class Term(NamedTuple):
    """weight·x, for a vector x that is read in blocks.

    Attributes:
        largest: the largest |x| of the vector.
    """

    read: ReadBlock
    weight: float
    largest: float


class ExactSum:
    """Σ w·x over vectors x of one length, exactly.

    Args:
        parameters: length of the vectors.
    """

    def __init__(self, parameters: int) -> None:
        self.parameters = parameters
        self._sums: Doubles = np.empty((len(GRIDS), parameters))
        self._fine = False  # whether anything lies on the last grid, whose sum is unused otherwise
        self._bounds: list[float] = []
        block = min(BLOCK, parameters)
        self._x: Doubles = np.empty(block)
        self._q: Doubles = np.empty(block)

    def clear(self) -> None:
        """Back to the empty sum; the memory is kept."""
        self._bounds.clear()
        self._fine = False

    def add(self, vector: Vector, weight: float) -> None:
        """Add weight·vector. Subtracting is adding with the opposite weight.

        Raises:
            Diverged: as `add_terms`.
        """
        largest = float(np.max(np.abs(vector))) if len(vector) else 0.0
        self.add_terms([Term(lambda start, stop: vector[start:stop], weight, largest)])

    def add_terms(self, terms: Sequence[Term]) -> None:
        """Add several terms, block by block: together they cost less than one by one.

        Raises:
            Diverged: the terms could leave the range in which sums are exact. Whether they do is
                decided from Σ |w|·max|x|, which does not depend on the order.
        """
        empty = not self._bounds
        self._bounds.extend(abs(term.weight) * term.largest for term in terms)
        if not math.fsum(self._bounds) < RANGE or len(self._bounds) > TERMS:
            raise Diverged(
                f"the sum of |weight|·max|update| reached {math.fsum(self._bounds):.3g}; sums are "
                f"exact below {RANGE:.3g}. Lower the learning rate, or set "
                f"training.projection_radius or server.guard.max_norm"
            )
        for start in range(0, self.parameters, BLOCK):
            stop = min(start + BLOCK, self.parameters)
            for position, term in enumerate(terms):
                first = empty and position == 0
                self._extract(term.read(start, stop), term.weight, start, stop, first)

    def _extract(self, entries: Vector, weight: float, start: int, stop: int, first: bool) -> None:
        x, q = self._x[: stop - start], self._q[: stop - start]
        np.copyto(x, entries)
        np.multiply(x, weight, out=x)
        for magnet, sums in zip(_MAGNETS[:-1], self._sums[:-1], strict=True):
            _cut(x, magnet, q)
            # The first term is the sum: it need not be set to 0 for it.
            if first:
                sums[start:stop] = q
            else:
                sums[start:stop] += q
        if _any_bit(x.view(np.uint64)):  # as a rule nothing is left for the last grid
            if not self._fine:
                self._sums[-1] = 0.0
                self._fine = True
            _cut(x, _MAGNETS[-1], q)
            self._sums[-1, start:stop] += q

    def total(self, start: int = 0, stop: int | None = None) -> Doubles:
        """Entries [start, stop) of the sum: float64, the three grids joined with two_sum."""
        if not self._bounds:
            return np.zeros(len(range(*slice(start, stop).indices(self.parameters))))
        coarse, middle, fine = self._sums[:, start:stop]
        high, low = _two_sum(coarse, middle)
        if self._fine:
            low += fine
        high += low
        return high


def _cut(x: Doubles, magnet: float, q: Doubles) -> None:
    """Move what lies on the grid of `magnet` from x to q."""
    np.add(x, magnet, out=q)
    np.subtract(q, magnet, out=q)
    np.subtract(x, q, out=x)


def _two_sum(a: Doubles, b: Doubles) -> tuple[Doubles, Doubles]:
    """a + b as its float64 value and the exact rounding error (Knuth), in new arrays."""
    total = a + b
    shadow = total - a
    rest = total - shadow
    np.subtract(a, rest, out=rest)
    np.subtract(b, shadow, out=shadow)
    rest += shadow
    return total, rest


def apply(
    model: Vector, total: ExactSum, *, keep: float, scale: float, normaliser: float
) -> Vector:
    """Return keep·model + scale·total/normaliser, in float64, divided and rounded once per entry.

    Raises:
        Diverged: an entry is not a finite float32.
    """
    result = np.empty_like(model)
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, len(model), BLOCK):
            stop = min(start + BLOCK, len(model))
            step = total.total(start, stop)
            if scale != 1.0:
                step *= scale
            step /= normaliser
            old = model[start:stop]
            step += old if keep == 1.0 else keep * old.astype(np.float64)
            result[start:stop] = step
    if len(result) and not (math.isfinite(_largest(result)) and math.isfinite(_least(result))):
        raise Diverged("the new model has entries that float32 cannot hold")
    return result
