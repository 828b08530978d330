"""Compression to a byte per entry, by stochastic rounding.

Alistarh et al., QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding, NeurIPS
2017, section 3.1. Here the largest entry of a block takes the place of the norm of the vector, and
there is no entropy code, so that the length is fixed.
https://arxiv.org/abs/1610.02132
"""

import numpy as np

from muster.common.compression.contract import BLOCK, Codec, Draws, EntryRange, Pread, entries
from muster.common.errors import RemoteProtocolError
from muster.common.tensors import WIRE, Vector

NEIGHBOURS, LEVELS = 1024, 127
LEVEL: "np.dtype[np.int8]" = np.dtype("i1")


class Int8(Codec):
    """Each entry as a whole multiple, −127 to 127, of a step: about a byte per entry.

    Each block of 1,024 neighbours shares a step, which is their largest absolute value / 127.
    Entries are rounded up or down at random so that the mean over draws is the value itself, and
    the error is less than one step. A body has the steps, as float32, then the multiples. The
    step is rounded up, so values within 10⁻⁶ of the largest float32 may become infinite.
    """

    def length(self, parameters: int) -> int:
        return self._steps_bytes(parameters) + parameters

    def encode(self, delta: Vector, draws: Draws) -> bytes:
        blocks = np.zeros((-(-len(delta) // NEIGHBOURS), NEIGHBOURS), np.float32)
        blocks.reshape(-1)[: len(delta)] = delta
        # NaN and infinity pass through. A block of zeros is not divided by its step.
        with np.errstate(invalid="ignore", over="ignore"):
            largest = np.maximum(blocks.max(axis=1), -blocks.min(axis=1))
            steps: Vector = largest / np.float32(LEVELS)
            # Round up, because otherwise the largest entry could be more than 127 steps, among
            # subnormal numbers far more.
            short = steps * np.float32(LEVELS) < largest
            steps[short] = np.nextafter(steps[short], np.float32(np.inf))
            blocks /= np.where(steps > 0, steps, np.float32(1))[:, None]
            blocks += draws().random(blocks.shape, np.float32)
            # In float32, 127 plus a draw close to 1 is 128.
            np.minimum(np.floor(blocks, out=blocks), LEVELS, out=blocks)
            levels = blocks.reshape(-1)[: len(delta)].astype(LEVEL)
        return steps.astype(WIRE).tobytes() + levels.tobytes()

    def read(self, pread: Pread, start: int, stop: int, parameters: int) -> Vector:
        first, last = start // NEIGHBOURS, -(-stop // NEIGHBOURS)
        steps = entries(pread, WIRE, first, last)
        levels = entries(pread, LEVEL, start, stop, self._steps_bytes(parameters))
        size = len(levels)
        with np.errstate(invalid="ignore", over="ignore"):  # the range shows such entries
            skip = start - first * NEIGHBOURS
            values = np.repeat(steps.astype(np.float32), NEIGHBOURS)[skip : skip + size]
            values *= levels
        return values

    def check(self, pread: Pread, parameters: int) -> EntryRange:
        blocks = self._steps_bytes(parameters) // WIRE.itemsize
        for start in range(0, blocks, BLOCK):
            steps = entries(pread, WIRE, start, min(start + BLOCK, blocks))
            if (wrong := np.flatnonzero(steps < 0)).size:
                raise RemoteProtocolError(
                    f"block {start + wrong[0]} has the step {steps[wrong[0]]}; expected >= 0"
                )
        return super().check(pread, parameters)

    def _steps_bytes(self, parameters: int) -> int:
        return -(-parameters // NEIGHBOURS) * WIRE.itemsize
