"""Compression to the largest entries, with error feedback for the others.

Stich et al., Sparsified SGD with Memory, NeurIPS 2018, Algorithm 1. https://arxiv.org/abs/1809.07599
Karimireddy et al., Error Feedback Fixes SignSGD and other Gradient Compression Schemes, ICML 2019,
Algorithm 2. https://arxiv.org/abs/1901.09847
"""

import math
from bisect import bisect_left
from typing import Annotated

import numpy as np
from pydantic import Field

from muster.common.compression.contract import BLOCK, Codec, Draws, EntryRange, Pread, entries
from muster.common.errors import RemoteProtocolError
from muster.common.tensors import WIRE, Vector

INDEX = np.dtype("<u4")


class TopK(Codec):
    """The entries of largest absolute value, with their positions: 8 bytes per entry sent.

    The entries that are not sent are added to the device's next update (error feedback). Among
    entries of equal size the first are sent. A body has the positions, as ascending uint32, then
    the values, as float32.
    """

    feedback = True

    ratio: Annotated[float, Field(gt=0, le=1)] = 0.01
    """Share of the entries that are sent; at least one entry is sent. Above 0.5 nothing is
    saved."""

    def kept(self, parameters: int) -> int:
        """Number of entries that are sent."""
        # Rounded first, because 0.07 · 100 is 7.000000000000001, which must not give 8 entries.
        return min(parameters, max(1, math.ceil(round(self.ratio * parameters, 6))))

    def length(self, parameters: int) -> int:
        return self.kept(parameters) * (INDEX.itemsize + WIRE.itemsize)

    def encode(self, delta: Vector, draws: Draws) -> bytes:
        count = self.kept(len(delta))
        # Without the sign bit, float32 values read as whole numbers have the same order. NaN is
        # the largest.
        sizes = delta.view(np.uint32) & np.uint32(0x7FFFFFFF)
        least = np.partition(sizes, len(sizes) - count)[len(sizes) - count] if count else 0
        places = np.flatnonzero(sizes >= least)
        if spare := len(places) - count:  # of entries equal to the least, leave out the last
            equal = np.flatnonzero(sizes[places] == least)
            places = np.delete(places, equal[-spare:])
        return places.astype(INDEX).tobytes() + delta[places].astype(WIRE).tobytes()

    def read(self, pread: Pread, start: int, stop: int, parameters: int) -> Vector:
        count = self.kept(parameters)
        slots = range(count)

        def place(slot: int) -> int:
            return int(entries(pread, INDEX, slot, slot + 1)[0])

        first = bisect_left(slots, start, key=place)
        last = bisect_left(slots, stop, first, min(count, first + stop - start), key=place)
        vector = np.zeros(stop - start, np.float32)
        places = entries(pread, INDEX, first, last)
        vector[places - np.uint32(start)] = entries(
            pread, WIRE, first, last, count * INDEX.itemsize
        )
        return vector

    def check(self, pread: Pread, parameters: int) -> EntryRange:
        count, extent, before = self.kept(parameters), EntryRange(), -1
        for start in range(0, count, BLOCK):
            stop = min(start + BLOCK, count)
            places = entries(pread, INDEX, start, stop).astype(np.int64)
            if (np.diff(places, prepend=before) <= 0).any():
                raise RemoteProtocolError("the places of the entries do not ascend")
            if places[-1] >= parameters:
                raise RemoteProtocolError(
                    f"there is an entry for place {places[-1]}; the vector has {parameters}"
                )
            before = places[-1]
            values = entries(pread, WIRE, start, stop, count * INDEX.itemsize)
            extent = extent.with_entries(values.astype(np.float32, copy=False))
        return extent
