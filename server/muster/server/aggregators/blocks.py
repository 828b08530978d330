"""Updates side by side: what a rule computes from all updates of a round, block by block.

The updates stay in their bodies, in memory or on disk. Only one block of coordinates of all of them
is in memory at a time. The results do not depend on the order of the updates, if the rule's do not.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from muster.common.errors import RunFailed
from muster.common.exact_sum import BLOCK, ReadBlock
from muster.common.seeds import FloatArray
from muster.server.aggregators.values import Matrix

_ENTRIES = 1 << 21
"""Entries of a block of all updates. As float32 they take 8 MiB, and a rule needs some copies."""

_CACHED = 1 << 16
"""Entries of a block for distances. Their float64 copy takes 512 KiB and stays in the cache."""

_LEAST = 64
"""Fewest coordinates in a block. Reading fewer of an update costs as much."""


def squared_distances(reads: Sequence[ReadBlock], parameters: int) -> FloatArray:
    """Return the squared Euclidean distances between all vectors, float64, shape (vectors,
    vectors).

    They are sums of squared differences in a fixed order. The faster ‖a‖² + ‖b‖² − 2·a·b loses the
    distance between two long vectors that lie close together, and its bits depend on the BLAS.

    Args:
        reads: read the vectors; at least one.
    """
    count = len(reads)
    sums = np.zeros((count, count))
    for block in _blocks(reads, parameters, _CACHED):
        doubles = block.astype(np.float64)
        room = np.empty_like(doubles)
        for row in range(count - 1):
            differences = np.subtract(doubles[row + 1 :], doubles[row], out=room[row + 1 :])
            np.multiply(differences, differences, out=differences)
            sums[row, row + 1 :] += differences.sum(axis=1)
    return sums + sums.T


def combined(
    reads: Sequence[ReadBlock], parameters: int, combine: Callable[[Matrix], FloatArray]
) -> FloatArray:
    """Return what `combine` makes of all blocks of the vectors, float64, shape (parameters,).

    Raises:
        RunFailed: there is no vector, or `combine` returns an array of another shape.
    """
    if not reads:
        raise RunFailed("the aggregator gave every update the weight 0, so it can combine none")
    whole, start = np.empty(parameters), 0
    for block in _blocks(reads, parameters, _ENTRIES):
        found, width = combine(block), block.shape[1]
        if np.shape(found) != (width,):
            raise RunFailed(
                f"the aggregator combined {width} coordinates of {len(reads)} updates into an "
                f"array of shape {np.shape(found)}; expected ({width},)"
            )
        whole[start : start + width] = found
        start += width
    return whole


def _blocks(reads: Sequence[ReadBlock], parameters: int, entries: int) -> Iterator[Matrix]:
    """Yield the vectors block by block, one vector in a row; the next block overwrites them."""
    most = min(BLOCK, max(_LEAST, entries // len(reads)))
    room = np.empty((len(reads), most), np.float32)
    for start in range(0, parameters, most):
        stop = min(start + most, parameters)
        block = room[:, : stop - start]
        for row, read in zip(block, reads, strict=True):
            row[:] = read(start, stop)
        yield block
