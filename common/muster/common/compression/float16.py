"""Compression to half precision: half the bits."""

import numpy as np

from muster.common.compression.contract import Codec, Draws, Pread, entries
from muster.common.tensors import Vector

HALF: "np.dtype[np.float16]" = np.dtype("<f2")


class Float16(Codec):
    """IEEE half precision, rounded to the nearest: 2 bytes per parameter.

    The relative error is at most 2⁻¹¹ for absolute values of at least 6.1e-5, and the absolute
    error is at most 3.0e-8 for smaller ones. An absolute value of 65,520 or more becomes infinite,
    and the server refuses the update as not finite.
    """

    def length(self, parameters: int) -> int:
        return parameters * HALF.itemsize

    def encode(self, delta: Vector, draws: Draws) -> bytes:
        with np.errstate(over="ignore", invalid="ignore"):  # overflow becomes infinity, as intended
            return delta.astype(HALF).tobytes()

    def read(self, pread: Pread, start: int, stop: int, parameters: int) -> Vector:
        return entries(pread, HALF, start, stop).astype(np.float32)
