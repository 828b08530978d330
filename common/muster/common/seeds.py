"""One seed per scenario; every actor derives its own stream of random numbers by name.

A stream depends on the seed and its name alone, never on how many others exist or in which order
they draw. Adding a device therefore changes no other device's draws, and what several devices
share (a group's event, a draw without replacement) each computes from the same named stream.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_BLOCKS_KEPT = 3


def stream(seed: int, *name: str | int) -> np.random.Generator:
    """Return the generator called `name`, for example `stream(7, "batches", "phones-0003", 12)`.

    Philox is counter-based: its key is all the state a stream has before its first draw
    (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011).
    """
    return np.random.Generator(np.random.Philox(key=int.from_bytes(_digest(seed, name), "little")))


def integer(seed: int, *name: str | int) -> int:
    """Return the number in [0, 2^63) called `name`, for what takes a seed of its own."""
    return int.from_bytes(_digest(seed, name)[:8], "little") >> 1


def _digest(seed: int, name: tuple[str | int, ...]) -> bytes:
    # Length-prefixed, so that ("ab", "c") and ("a", "bc") are different names.
    text = "".join(f"{len(part)}:{part}" for part in map(str, (seed, *name)))
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def normals(u: FloatArray, v: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Two standard normal numbers of two uniform ones in [0, 1), arrays (Box, Muller 1958)."""
    radius, angle = np.sqrt(-2 * np.log1p(-u)), 2 * np.pi * v
    return radius * np.cos(angle), radius * np.sin(angle)


class Numbers:
    """Uniform numbers in [0, 1) for several devices at once, read by index.

    Number i of a device depends on seed, purpose, client and i alone: one process that computes a
    single device and a plan of a hundred thousand read the same ones.

    Args:
        purpose: what they decide; part of the stream's name.
        clients: whose they are, in the order of the rows.
        width: numbers of one index.
        ahead: indices that are made at once; a stream costs as much as thousand numbers.
    """

    def __init__(
        self,
        seed: int,
        purpose: tuple[str | int, ...],
        clients: Sequence[str],
        width: int = 1,
        ahead: int = 64,
    ) -> None:
        digests = b"".join(_digest(seed, (*purpose, client)) for client in clients)
        self._keys = np.frombuffer(digests, "<u8").reshape(-1, 2)
        self._width = width
        self._rows = np.arange(len(clients))
        # A counter of Philox gives four numbers; whole blocks begin at whole counters.
        self._ahead = -(-ahead // 4) * 4
        self._blocks: dict[int, FloatArray] = {}

    def at(self, index: int) -> FloatArray:
        """The numbers of `index` (>= 0), shape (devices, width)."""
        block, place = divmod(index, self._ahead)
        numbers: FloatArray = self._block(block)[place]
        return numbers

    def at_each(self, indices: IntArray) -> FloatArray:
        """As `at`, with an index (>= 0) for every device."""
        blocks, places = np.divmod(indices, self._ahead)
        first, last = int(blocks.min()), int(blocks.max())
        if first == last:
            return self._block(first)[places, self._rows]
        found = np.empty((len(self._rows), self._width))
        for block in np.unique(blocks):
            there = blocks == block
            found[there] = self._block(int(block))[places[there], self._rows[there]]
        return found

    def _block(self, number: int) -> FloatArray:
        block = self._blocks.get(number)
        if block is None:
            while len(self._blocks) >= _BLOCKS_KEPT:
                self._blocks.pop(next(iter(self._blocks)))
            block = self._blocks[number] = self._made(number)
        return block

    def _made(self, number: int) -> FloatArray:
        per_device = self._ahead * self._width
        made = np.empty((len(self._keys), per_device))
        # Pointing one generator at every device's stream takes a tenth of making generators.
        philox = np.random.Philox(key=0)
        generator, state = np.random.Generator(philox), philox.state
        state["state"]["counter"][0] = number * per_device // 4
        for row, key in zip(made, self._keys, strict=True):
            state["state"]["key"] = key
            philox.state = state
            generator.random(out=row)
        # By index first: the numbers of a step lie side by side.
        by_device = made.reshape(len(self._keys), self._ahead, self._width)
        return np.ascontiguousarray(by_device.transpose(1, 0, 2))
