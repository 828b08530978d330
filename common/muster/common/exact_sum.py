"""Exact weighted sums of vectors: every order, every split and every replay gives the same bits.

Every term is cut into three pieces that lie on fixed grids (2^-20, 2^-52, 2^-84), and each grid has
a float64 sum of its own. Sums on a grid are exact while the total of |w x| stays below 2^31 and the
number of terms at most 2^20, so they do not depend on the order. The rest below 2^-85 is dropped
from each term separately, so it does not depend on the order either.

The first two sums are kept with 1.5·2^(52+e) added to them. At that magnitude the spacing of
float64 is the grid 2^e, so adding x to the sum rounds x to the grid, and the growth of the sum is
the piece.

Because the total is a function of the set of terms, sums of some of the terms can be added to each
other: `ExactSum.pieces` gives what a sum has on each grid, and `ExactSum.add_part` adds it.

Error-free extraction: Rump, Ogita, Oishi, Accurate floating-point summation, SIAM J. Sci. Comput.
31 (2008); reproducible on fixed grids: Demmel, Nguyen, Fast reproducible floating-point summation,
ARITH 2013. 24 bytes per parameter, 32 where anything lies on the last grid.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from muster.common.errors import Diverged
from muster.common.tensors import Vector, sum_of_squares

GRIDS = (-20, -52, -84)
RANGE = 2.0**31
TERMS = 1 << 20

_COARSE, _MIDDLE, _FINE = (1.5 * 2.0 ** (52 + exponent) for exponent in GRIDS)
_COARSE_STEP, _STEP, _FINE_STEP = (2.0**exponent for exponent in GRIDS)

_any_bit, _largest, _least = np.bitwise_or.reduce, np.maximum.reduce, np.minimum.reduce

BLOCK = 16_384
"""Entries that are processed at once. A block's sums and the term that is added to them, 512 KiB
together, stay in the cache."""

Doubles = npt.NDArray[np.float64]
ReadBlock = Callable[[int, int], Vector]
"""`read(start, stop)` returns entries [start, stop) of a vector."""
Changed = Callable[[int, int, Doubles, Doubles], None]
"""`changed(start, stop, before, after)` gets the totals of entries [start, stop)."""


class Term(NamedTuple):
    """weight·x, for a vector x that is read in blocks.

    Attributes:
        largest: the largest |x| of the vector.
    """

    read: ReadBlock
    weight: float
    largest: float


class Pieces(NamedTuple):
    """What a sum has on each grid, as whole multiples of the grid's step.

    The finer grids hold what is left after whole steps of the next coarser grid have been carried
    to it. So two sums with the same total have the same pieces.

    Attributes:
        coarse: int64, shape (entries,), in units of 2^-20.
        middle: uint32, in units of 2^-52.
        fine: uint32, in units of 2^-84; None if the sum has nothing on this grid.
    """

    coarse: npt.NDArray[np.int64]
    middle: npt.NDArray[np.uint32]
    fine: npt.NDArray[np.uint32] | None


ReadPieces = Callable[[int, int], Pieces]
"""`read(start, stop)` returns what a sum has at entries [start, stop)."""


class ExactSum:
    """Σ w·x over vectors x of one length, exactly.

    Args:
        parameters: length of the vectors.
    """

    def __init__(self, parameters: int) -> None:
        self.parameters = parameters
        # The coarse sum, the middle sum, and room for the next one: every term rotates them.
        self._sums = _rows(3, parameters)
        self._last: Doubles = np.empty(parameters)
        self._fine = False  # whether any term has a piece on the last grid; if not, _last is unused
        self._bounds: list[float] = []
        self._about = 0.0  # the sum of the bounds, rounded
        self._x, *self._joined = _rows(5, min(BLOCK, parameters))

    def clear(self) -> None:
        """Reset to the empty sum; the memory is kept."""
        self._bounds.clear()
        self._about = 0.0
        self._fine = False

    def add(self, vector: Vector, weight: float) -> None:
        """Add weight·vector. To subtract, add with the opposite weight.

        Raises:
            Diverged: see `add_terms`.
        """
        largest = float(np.max(np.abs(vector))) if len(vector) else 0.0
        self.add_terms([Term(lambda start, stop: vector[start:stop], weight, largest)])

    def add_terms(self, terms: Sequence[Term], changed: Changed | None = None) -> None:
        """Add several terms, block by block. Adding them together costs less than one by one.

        Args:
            changed: called for every block with its bounds and with its totals before and after;
                it may overwrite both.

        Raises:
            Diverged: the terms could leave the range in which sums are exact. The test uses
                Σ |w|·max|x|, which does not depend on the order.
        """
        empty = not self._bounds
        self._enter_bounds([abs(term.weight) * term.largest for term in terms])
        for start in range(0, self.parameters, BLOCK):
            stop = min(start + BLOCK, self.parameters)
            coarse, middle, room = [each[start:stop] for each in self._sums]
            x = self._x[: stop - start]
            if changed is not None:
                before = np.zeros(stop - start)
                if not empty:
                    before += self._join(coarse, middle, start, stop)
            for position, term in enumerate(terms):
                np.copyto(x, term.read(start, stop))
                if term.weight != 1.0:
                    np.multiply(x, term.weight, out=x)
                # The first term of an empty sum is added to the constant, so the arrays need not
                # be initialised.
                first = empty and position == 0
                _move(x, _COARSE if first else coarse, room, coarse)
                _move(x, _MIDDLE if first else middle, coarse, middle)
                self._keep(x, start, stop)
                coarse, middle, room = room, coarse, middle
            if changed is not None:
                changed(start, stop, before, self._join(coarse, middle, start, stop))
        turn = len(terms) % 3
        self._sums = self._sums[-turn:] + self._sums[:-turn]

    def _enter_bounds(self, bounds: Sequence[float]) -> None:
        """Enter |w|·max|x| of further terms.

        Raises:
            Diverged: see `add_terms`.
        """
        self._bounds.extend(bounds)
        self._about += sum(bounds)
        # The exact sum of all of them takes long after many terms.
        if not self._about < RANGE / 2 or len(self._bounds) > TERMS:
            _require_range(self._bounds)

    def require_range(self, bounds: Sequence[float]) -> None:
        """Check that further terms leave the sum in its range.

        Args:
            bounds: |w|·max|x| of each of these terms.

        Raises:
            Diverged: see `add_terms`.
        """
        _require_range([*self._bounds, *bounds])

    @property
    def empty(self) -> bool:
        """Whether the sum has no term."""
        return not self._bounds

    @property
    def fine(self) -> bool:
        """Whether the sum has anything on the last grid."""
        return self._fine

    def pieces(self, start: int, stop: int) -> Pieces:
        """What the sum of at least one term has at entries [start, stop) on each grid."""
        coarse = self._sums[0][start:stop] - _COARSE
        middle = self._sums[1][start:stop] - _MIDDLE
        fine = None
        if self._fine:
            last = self._last[start:stop].copy()
            carry = np.floor(last / _STEP) * _STEP
            middle += carry
            last -= carry
            fine = (last / _FINE_STEP).astype(np.uint32)
        carry = np.floor(middle / _COARSE_STEP) * _COARSE_STEP
        coarse += carry
        middle -= carry
        return Pieces(
            (coarse / _COARSE_STEP).astype(np.int64), (middle / _STEP).astype(np.uint32), fine
        )

    def add_part(self, read: ReadPieces, bounds: Sequence[float]) -> None:
        """Add the sum of other terms.

        Args:
            bounds: |w|·max|x| of each of these terms.

        Raises:
            Diverged: see `add_terms`.
        """
        empty = not self._bounds
        self._enter_bounds(bounds)
        for start in range(0, self.parameters, BLOCK):
            stop = min(start + BLOCK, self.parameters)
            coarse, middle, _ = (each[start:stop] for each in self._sums)
            if empty:
                coarse[:], middle[:] = _COARSE, _MIDDLE
            part = read(start, stop)
            coarse += part.coarse * _COARSE_STEP
            middle += part.middle * _STEP
            if part.fine is not None:
                self._begin_fine()
                self._last[start:stop] += part.fine * _FINE_STEP

    def _begin_fine(self) -> None:
        if not self._fine:
            self._last[:] = 0.0
            self._fine = True

    def _keep(self, x: Doubles, start: int, stop: int) -> None:
        """Add a block of a term's rest, which is usually zero, to the last sum."""
        if not _any_bit(x.view(np.uint64)):
            return
        self._begin_fine()
        np.add(x, _FINE, out=x)
        np.subtract(x, _FINE, out=x)
        self._last[start:stop] += x

    def settle(self, bounds: Sequence[float]) -> None:
        """Carry the finer sums into the coarser ones, so that the sum can take as many further
        terms as a new one. The total stays the same.

        Args:
            bounds: |w|·max|x| of the terms that have not been subtracted again; at least one.
        """
        self._bounds, self._about = list(bounds), sum(bounds)
        for start in range(0, self.parameters, BLOCK):
            stop = min(start + BLOCK, self.parameters)
            coarse, middle, _ = (each[start:stop] for each in self._sums)
            carry = self._x[: stop - start]
            if self._fine:
                last = self._last[start:stop]
                np.copyto(carry, last)
                _floor(carry, _STEP)
                last -= carry
                middle += carry
            np.subtract(middle, _MIDDLE, out=carry)
            _floor(carry, _COARSE_STEP)
            middle -= carry
            coarse += carry

    def total(self) -> Doubles:
        """The sum in float64: the three grids joined with two_sum."""
        whole = np.empty(self.parameters)
        for start in range(0, self.parameters, BLOCK):
            stop = min(start + BLOCK, self.parameters)
            whole[start:stop] = self.block(start, stop)
        return whole

    def block(self, start: int, stop: int) -> Doubles:
        """Entries [start, stop) of the total, at most BLOCK. The next call overwrites them."""
        if not self._bounds:
            nothing = self._joined[0][: stop - start]
            nothing[:] = 0.0
            return nothing
        return self._join(self._sums[0][start:stop], self._sums[1][start:stop], start, stop)

    def _join(self, coarse_sum: Doubles, middle_sum: Doubles, start: int, stop: int) -> Doubles:
        """The total of a block, from its sums with their constants and from the last sum."""
        coarse, middle, high, rest = [each[: stop - start] for each in self._joined]
        np.subtract(coarse_sum, _COARSE, out=coarse)
        np.subtract(middle_sum, _MIDDLE, out=middle)
        fine = None
        if self._fine:
            # The rounding of ties depends on the order; after the carry the sums no longer do.
            carry = np.floor(self._last[start:stop] / _STEP) * _STEP
            fine = self._last[start:stop] - carry
            middle += carry
        # Knuth's two_sum: the rounding error of high, exactly, becomes low.
        np.add(coarse, middle, out=high)
        np.subtract(high, coarse, out=rest)
        np.subtract(middle, rest, out=middle)
        np.subtract(high, rest, out=rest)
        np.subtract(coarse, rest, out=coarse)
        low = np.add(coarse, middle, out=coarse)
        if fine is not None:
            low += fine
        high += low
        return high


def _require_range(bounds: Sequence[float]) -> None:
    if not math.fsum(bounds) < RANGE or len(bounds) > TERMS:
        raise Diverged(
            f"the sum of |weight|·max|update| reached {math.fsum(bounds):.3g}; sums are "
            f"exact below {RANGE:.3g}. Lower the learning rate, or set "
            f"training.projection_radius or server.guard.max_norm"
        )


def squared_norm(read: ReadBlock, parameters: int) -> float:
    """‖x‖² of a vector that is read in blocks.

    The blocks are always the same, so the result does not depend on how the vector arrived. The
    squares of float32 numbers are exact in float64.
    """
    sums = []
    for start in range(0, parameters, BLOCK):
        block = np.asarray(read(start, min(start + BLOCK, parameters)), np.float64)
        sums.append(sum_of_squares(block))
    return math.fsum(sums)


def _rows(count: int, length: int) -> list[Doubles]:
    """Return arrays that begin at cache lines, no two of them a whole number of pages apart. With
    arrays as malloc returns them, sums take up to 1.6 times as long."""
    width = -(-length // _LINE) * _LINE + _LINE
    width += _LINE if width % _PAGE == 0 else 0
    room = np.empty(count * width + _LINE)
    begin = -(room.ctypes.data // room.itemsize) % _LINE
    return [room[at : at + length] for at in range(begin, begin + count * width, width)]


_LINE, _PAGE = 8, 512
"""Sizes of a cache line and of a memory page, in float64 entries."""


def _floor(x: Doubles, step: float) -> None:
    """Round x down to multiples of a power of two, exactly."""
    np.multiply(x, 1 / step, out=x)
    np.floor(x, out=x)
    np.multiply(x, step, out=x)


def _move(x: Doubles, before: Doubles | float, after: Doubles, grown: Doubles) -> None:
    """Move the part of x that lies on the grid of a sum from x to the sum.

    Args:
        x: keeps the rest.
        before: the sum before.
        after: receives the new sum.
        grown: scratch space; it may be the same array as `before`.
    """
    np.add(before, x, out=after)
    np.subtract(after, before, out=grown)
    np.subtract(x, grown, out=x)


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
            step = total.block(start, stop)
            if scale != 1.0:
                step *= scale
            step /= normaliser
            old = model[start:stop]
            step += old if keep == 1.0 else keep * old.astype(np.float64)
            result[start:stop] = step
    require_finite(result)
    return result


def apply_change(
    model: Vector, total: ExactSum, terms: Sequence[Term], *, fresh: float, past: float
) -> Vector:
    """Add terms to a sum, and return model + fresh·(after − before) + past·before, in float64 and
    rounded once per entry, where before and after are the totals.

    Raises:
        Diverged: see `ExactSum.add_terms`; or an entry of the model is not a finite float32.
    """
    result = np.empty_like(model)

    def changed(start: int, stop: int, before: Doubles, after: Doubles) -> None:
        after -= before
        after *= fresh
        before *= past
        after += before
        after += model[start:stop]
        result[start:stop] = after

    with np.errstate(over="ignore", invalid="ignore"):
        total.add_terms(terms, changed)
    require_finite(result)
    return result


def moved(model: Vector, step: Doubles) -> Vector:
    """Return model + step, rounded once per entry.

    Raises:
        Diverged: an entry is not a finite float32.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        result = (model + step).astype(np.float32)
    require_finite(result)
    return result


def require_finite(model: Vector) -> None:
    """Raise Diverged unless every entry is finite."""
    if len(model) and not (math.isfinite(_largest(model)) and math.isfinite(_least(model))):
        raise Diverged("the new model has entries that float32 cannot hold")
