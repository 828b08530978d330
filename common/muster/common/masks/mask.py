"""A mask: the set of coordinates of the flat parameter vector that a device trains."""

import numpy as np

from muster.common.seeds import BoolArray
from muster.common.tensors import Vector

_BLOCK = 16_384
"""Coordinates from one count to the next; whole bytes of bits. An exact sum reads vectors in blocks
of this size."""


class Mask:
    """A set of coordinates, kept as one bit for each coordinate.

    Attributes:
        parameters: number of coordinates of the whole vector.
        size: number of coordinates in the set.

    Args:
        chosen: whether each coordinate is in the set, shape (parameters,).
    """

    __slots__ = ("_bits", "_counts", "parameters", "size")

    def __init__(self, chosen: BoolArray) -> None:
        self.parameters = len(chosen)
        self._bits = np.packbits(chosen)
        blocks = np.zeros(-(-len(chosen) // _BLOCK) + 1, np.int64)
        if len(chosen):
            blocks[1:] = np.add.reduceat(chosen, np.arange(0, len(chosen), _BLOCK), dtype=np.int64)
        self._counts = np.cumsum(blocks)
        self.size = int(self._counts[-1])

    @property
    def ratio(self) -> float:
        """The share of the coordinates that are in the set."""
        return self.size / self.parameters

    @property
    def part(self) -> bytes:
        """What tells the masks of a model apart: a bit for each coordinate; empty if all are in the
        set."""
        return b"" if self.size == self.parameters else self._bits.tobytes()

    def within(self, start: int, stop: int) -> BoolArray:
        """Whether coordinates [start, stop) are in the set, shape (stop - start,)."""
        first = start // 8
        bits = np.unpackbits(self._bits[first : -(-stop // 8)], count=stop - 8 * first)
        return bits[start - 8 * first :].view(np.bool_)

    def whole(self) -> BoolArray:
        """Whether each coordinate is in the set, shape (parameters,)."""
        return self.within(0, self.parameters)

    def before(self, coordinate: int) -> int:
        """The number of coordinates in the set that are less than `coordinate`."""
        block = coordinate // _BLOCK
        rest = self.within(block * _BLOCK, coordinate)
        return int(self._counts[block]) + int(np.count_nonzero(rest))

    def compact(self, vector: Vector) -> Vector:
        """Return the entries of `vector` at the coordinates of the set, ascending, shape (size,).

        Args:
            vector: shape (parameters,).
        """
        return vector[self.whole()]

    def expand(self, compact: Vector, into: Vector) -> Vector:
        """Return a copy of `into` in which the entries of `compact` replace those at the
        coordinates of the set; the reverse of `compact`."""
        whole = into.copy()
        whole[self.whole()] = compact
        return whole

    def replace(self, outside: Vector, inside: Vector) -> Vector:
        """Return `outside` with the entries of `inside` at the coordinates of the set.

        Args:
            outside, inside: shape (parameters,); not changed.
        """
        return np.where(self.whole(), inside, outside)
