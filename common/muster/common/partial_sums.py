"""The bytes of a partial sum: the exact sum of the updates of some devices, as it travels.

A partial sum of d parameters has d little-endian int64 (the coarse grid), then d uint32 (the middle
grid) and, if any term has a piece on the last grid, d uint32 more (see
`muster.common.exact_sum.Pieces`). It takes 12 or 16 bytes for each parameter, so it is as long as
three or four uncompressed updates, however many updates are in it.
"""

import math
from typing import Final

import numpy as np

from muster.common.compression import Pread
from muster.common.compression.contract import entries
from muster.common.exact_sum import BLOCK, GRIDS, ExactSum, Pieces, ReadBlock, squared_norm
from muster.common.exchange import Held
from muster.common.tensors import sum_of_squares

_COARSE: Final = np.dtype("<i8")
_FINER: Final = np.dtype("<u4")
_STEP: Final = 2.0 ** GRIDS[0]

ROUNDING: Final = 2 * _STEP
"""By how much an entry of the coarse grid of a sum may exceed that of the sum."""


def held_of(read: ReadBlock, parameters: int) -> Held:
    """What the server gets to know of an update that is held back, from its vector."""
    largest = 0.0
    for start in range(0, parameters, BLOCK):
        block = np.abs(read(start, min(start + BLOCK, parameters)))
        largest = float(np.maximum(largest, block.max()))  # a NaN stays
    return Held(largest, squared_norm(read, parameters))


def partial_sum_lengths(parameters: int) -> tuple[int, int]:
    """The two lengths in bytes that a partial sum can have: without and with the last grid."""
    short = parameters * (_COARSE.itemsize + _FINER.itemsize)
    return short, short + parameters * _FINER.itemsize


def encode_partial_sum(sum: ExactSum) -> memoryview:
    """The bytes of a sum of at least one term."""
    parameters = sum.parameters
    body = bytearray(partial_sum_lengths(parameters)[sum.fine])
    coarse = np.frombuffer(body, _COARSE, parameters)
    middle = np.frombuffer(body, _FINER, parameters, coarse.nbytes)
    for start in range(0, parameters, BLOCK):
        stop = min(start + BLOCK, parameters)
        pieces = sum.pieces(start, stop)
        coarse[start:stop], middle[start:stop] = pieces.coarse, pieces.middle
        if pieces.fine is not None:
            fine = np.frombuffer(body, _FINER, parameters, coarse.nbytes + middle.nbytes)
            fine[start:stop] = pieces.fine
    return memoryview(body)


class EncodedSum:
    """A partial sum that is read from its bytes.

    Args:
        pread: reads the bytes, which have one of the two lengths.
        fine: whether they have the last grid.
    """

    def __init__(self, pread: Pread, parameters: int, fine: bool) -> None:
        self._pread = pread
        self._parameters = parameters
        self._fine = fine

    def read(self, start: int, stop: int) -> Pieces:
        """What the sum has at entries [start, stop)."""
        at = self._parameters * _COARSE.itemsize
        coarse = entries(self._pread, _COARSE, start, stop)
        middle = entries(self._pread, _FINER, start, stop, at)
        fine = None
        if self._fine:
            at += self._parameters * _FINER.itemsize
            fine = entries(self._pread, _FINER, start, stop, at)
        return Pieces(coarse, middle, fine)

    def extent(self) -> tuple[float, float]:
        """The largest absolute entry, and the norm, of the coarse grid alone. Those of the sum
        itself differ from them by at most `ROUNDING` an entry."""
        largest, squares = 0.0, 0.0
        for start in range(0, self._parameters, BLOCK):
            stop = min(start + BLOCK, self._parameters)
            coarse = entries(self._pread, _COARSE, start, stop) * _STEP
            largest = max(largest, float(np.max(np.abs(coarse))))
            squares += sum_of_squares(coarse)
        return largest, math.sqrt(squares)
