"""No compression."""

import numpy as np

from muster.common.compression.contract import Codec, Draws, Pread, entries
from muster.common.tensors import WIRE, Vector


class Whole(Codec):
    """No compression: little-endian float32, 4 bytes to a parameter."""

    def length(self, parameters: int) -> int:
        return parameters * WIRE.itemsize

    def encode(self, delta: Vector, draws: Draws) -> bytes:
        return delta.astype(WIRE, copy=False).tobytes()

    def read(self, pread: Pread, start: int, stop: int, parameters: int) -> Vector:
        return entries(pread, WIRE, start, stop).astype(np.float32, copy=False)
