"""The grid of secure sums: weighted updates as whole numbers, which are added modulo a power of 2.

With b bits, the entries of the heaviest update are whole numbers below 2^(b-1). The sum of n such
updates stays below 2^(b-1+⌈log2 n⌉), so it is the same modulo 2^m if b + ⌈log2 n⌉ ≤ m. Noise counts
like more devices.
"""

import math
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from muster.common.config import Section
from muster.common.exact_sum import GRIDS
from muster.common.secure.noise import TAIL
from muster.common.secure.steps import bytes_besides, request_bytes
from muster.common.tensors import Vector

Rounding = Literal["nearest", "stochastic"]

EXACT_BYTES: Final = 16
"""Bytes of an entry of an exact sum, which has no grid."""

USUAL_BYTES: Final = 4
"""Bytes of an entry if the scenario does not say how many bits it has."""

FEWEST_BITS: Final = 4
"""Fewest bits of an entry."""

MOST_BITS: Final = 53
"""Most bits of an entry: float64 has all whole numbers of so many."""

MOST_BYTES: Final = 8
"""Most bytes of an entry on a grid."""

_WIDTHS: Final[tuple[Literal[2, 4, 8], ...]] = (2, 4, MOST_BYTES)


def bits_for(devices: int, entry_bytes: int) -> int:
    """The most bits with which no sum of the updates of so many devices leaves so many bytes."""
    return min(MOST_BITS, 8 * entry_bytes - (devices - 1).bit_length())


class Grid(Section):
    """How a weighted update becomes whole numbers."""

    largest: float
    """Entries of an update beyond this are clipped to it."""

    exponent: int
    """The number 1 stands for 2^exponent."""

    most: int
    """The largest number of one device."""

    entry_bytes: Literal[2, 4, 8]
    """Bytes of a number, also of a sum."""

    rounding: Rounding

    norm: float | None = None
    """The largest norm of a weighted update; a longer one is scaled to it. None: any."""

    deviation: float = 0.0
    """Standard deviation of the noise that a device adds to each of its numbers, as that of a
    weighted entry."""

    @property
    def step(self) -> float:
        """What the number 1 stands for."""
        return 2.0**self.exponent

    def bound(self, weight: float, largest: float) -> float:
        """The largest entry of a weighted update on the grid, with its noise.

        Args:
            largest: entry of the update, before it is clipped.
        """
        return weight * min(largest, self.largest) + self.step + TAIL * self.deviation

    def whole(
        self, entries: Vector, weight: float, draws: np.random.Generator | None
    ) -> npt.NDArray[np.float64]:
        """The whole numbers of weighted entries, without noise.

        Args:
            draws: for stochastic rounding. None: entries are rounded towards 0, so that their norm
                does not grow.
        """
        steps = weight / self.step
        found = np.multiply(entries, steps, dtype=np.float64)
        limit = min(self.largest * steps, float(self.most))
        np.clip(found, -limit, limit, out=found)
        if draws is None:
            return np.trunc(found, out=found)
        if self.rounding == "nearest":
            return np.rint(found, out=found)
        found += draws.random(len(found))
        return np.floor(found, out=found)


class SumNoise(Section):
    """What devices do for differential privacy of a sum."""

    norm: float
    """The largest norm of a weighted update."""

    deviation: float
    """Standard deviation of the noise that each device adds to each entry."""

    def counts_as(self, devices: int, largest: float) -> int:
        """As how many more devices the noise of so many devices counts in their sum.

        Args:
            largest: entry of the heaviest weighted update.
        """
        return math.ceil(TAIL * self.deviation * math.sqrt(devices) / largest)


def grid_of(
    largest: float,
    bits: int | None,
    rounding: Rounding,
    devices: int,
    heaviest: float,
    noise: SumNoise | None = None,
) -> Grid:
    """The grid on which the sums of the updates of up to `devices` devices fit into as few bytes as
    possible.

    Args:
        bits: at most `bits_for(devices, MOST_BYTES)`; None: as many as fit into `USUAL_BYTES`.
        heaviest: the largest weight.
        noise: of each device.
    """
    if noise is not None:
        devices += noise.counts_as(devices, heaviest * largest)
    bits = bits_for(devices, USUAL_BYTES) if bits is None else bits
    entry_bytes = next(width for width in _WIDTHS if bits <= bits_for(devices, width))
    most = 2 ** (bits - 1) - 1
    part, exponent = math.frexp(heaviest * largest / most)
    exponent = max(exponent - (part == 0.5), GRIDS[-1])
    return Grid(
        largest=largest,
        exponent=exponent,
        most=most,
        entry_bytes=entry_bytes,
        rounding=rounding,
        norm=None if noise is None else noise.norm,
        deviation=0.0 if noise is None else noise.deviation,
    )


class SumFormat(Section):
    """How devices send their weighted updates for secure sums."""

    grid: Grid | None = None
    """None: sums are exact."""

    plain: bool = False
    """Whether updates are sent without pads."""

    heaviest: float
    """The largest weight on the grid."""

    neighbours: int
    """Those of each device in the largest round."""

    def traffic(self, entries: int) -> tuple[int, int]:
        """What travels to a device and from it for a sum of the largest round, in bytes: the
        server's requests, and the device's replies in place of its update."""
        if self.plain:
            return 0, entries * self.entry_bytes
        besides = bytes_besides(self.neighbours)
        return request_bytes(self.neighbours), entries * self.entry_bytes + besides

    @property
    def entry_bytes(self) -> int:
        """Bytes of an entry of an update, and of a sum."""
        return EXACT_BYTES if self.grid is None else self.grid.entry_bytes

    def bound(self, weight: float, largest: float) -> float:
        """The largest absolute entry of a weighted update, as it enters the sum."""
        return weight * largest if self.grid is None else self.grid.bound(weight, largest)
