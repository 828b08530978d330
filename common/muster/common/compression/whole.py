"""No compression."""

import numpy as np

from muster.common.compression.contract import Codec, Draws, Pread, entries
from muster.common.tensors import WIRE, Vector


class Whole(Codec):
    """No compression: little-endian float32, 4 bytes per parameter."""

    def length(self, parameters: int) -> int:
        return parameters * WIRE.itemsize

    def encode(self, delta: Vector, draws: Draws) -> memoryview:
        """Return the vector itself, without a copy on little-endian machines."""
        # A view of an empty array cannot be cast.
        return delta.astype(WIRE, copy=False).data.cast("B") if len(delta) else memoryview(b"")

    def read(self, pread: Pread, start: int, stop: int, parameters: int) -> Vector:
        return entries(pread, WIRE, start, stop).astype(np.float32, copy=False)
