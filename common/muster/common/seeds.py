"""Named streams of random numbers, all derived from the one seed of a scenario.

A stream depends only on the seed and its name, never on how many streams exist or in which order
they are used. Adding a device therefore changes no other device's draws. If devices share something
(a group's event, a draw without replacement), each computes it from the same named stream.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import DTypeLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_BLOCKS_KEPT = 3


def stream(seed: int, *name: str | int) -> np.random.Generator:
    """Return the generator called `name`, for example `stream(7, "batches", "phones-0003", 12)`.

    Philox is counter-based: its key is all the state a stream has before its first draw
    (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011).
    """
    # numpy takes every ISeedSequence; its stubs name only SeedSequence.
    key = _Key(_digest(seed, name))
    return np.random.Generator(np.random.Philox(key))  # type: ignore[arg-type]


class _Key(ISeedSequence):
    """The key of a stream, where numpy expects a seed from which to make one.

    If numpy gets the key itself, it still asks the system for entropy and mixes a seed that it does
    not use. Then a stream takes twice as long to make.
    """

    def __init__(self, digest: bytes) -> None:
        self._digest = digest

    def generate_state(self, n_words: int, dtype: DTypeLike = np.uint32) -> NDArray[Any]:
        """Return the key: `n_words` numbers of `dtype`."""
        return np.frombuffer(self._digest, dtype, n_words)


def integer(seed: int, *name: str | int) -> int:
    """Return the number in [0, 2^63) called `name`, for code that needs a seed of its own."""
    return int.from_bytes(_digest(seed, name)[:8], "little") >> 1


def _digest(seed: int, name: tuple[str | int, ...]) -> bytes:
    return hashlib.blake2b(_text(seed, *name), digest_size=16).digest()


def _digests(seed: int, purpose: tuple[str | int, ...], clients: Sequence[str]) -> bytes:
    """The digests of (*purpose, client) for every client, one after the other."""
    begun, found = hashlib.blake2b(_text(seed, *purpose), digest_size=16), []
    for client in clients:
        of_client = begun.copy()
        of_client.update(_text(client))
        found.append(of_client.digest())
    return b"".join(found)


def _text(*parts: str | int) -> bytes:
    # Length-prefixed, so that ("ab", "c") and ("a", "bc") are different names.
    return "".join([f"{len(part)}:{part}" for part in map(str, parts)]).encode()


FARTHEST_NORMAL = 8.6
"""No number of `normals` is farther from 0: the largest number below 1 gives 8.572."""


LARGEST_NORMAL = 8.6
"""`normals` gives no larger number: uniform ones have 53 bits."""


def normals(u: FloatArray, v: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Two arrays of standard normal numbers from uniform ones in [0, 1) (Box, Muller 1958)."""
    radius, angle = np.sqrt(-2 * np.log1p(-u)), 2 * np.pi * v
    return radius * np.cos(angle), radius * np.sin(angle)


class Numbers:
    """Uniform numbers in [0, 1) for several devices at once, read by index.

    Number i of a device depends only on seed, purpose, client and i. A process that computes a
    single device therefore reads the same numbers as a plan of a hundred thousand devices.

    Args:
        purpose: what the numbers decide; part of the stream's name.
        clients: the devices, in the order of the rows.
        width: numbers per index.
        ahead: indices that are computed at once; starting a stream costs as much as a thousand
            numbers.
    """

    def __init__(
        self,
        seed: int,
        purpose: tuple[str | int, ...],
        clients: Sequence[str],
        width: int = 1,
        ahead: int = 64,
    ) -> None:
        self._keys = np.frombuffer(_digests(seed, purpose, clients), "<u8").reshape(-1, 2)
        self._width = width
        self._rows = np.arange(len(clients))
        # One count of Philox's counter gives four numbers, and blocks must begin at a whole count.
        self._ahead = -(-ahead // 4) * 4
        self._blocks: dict[int, FloatArray] = {}

    def at(self, index: int) -> FloatArray:
        """The numbers of `index` (>= 0), shape (devices, width)."""
        block, place = divmod(index, self._ahead)
        numbers: FloatArray = self.block(block)[place]
        return numbers

    def at_each(self, indices: IntArray) -> FloatArray:
        """The numbers at `indices` (>= 0), one index for every device; shape (devices, width)."""
        blocks, places = np.divmod(indices, self._ahead)
        first, last = int(blocks.min()), int(blocks.max())
        if first == last:
            return self.block(first)[places, self._rows]
        found = np.empty((len(self._rows), self._width))
        for block in np.unique(blocks):
            there = blocks == block
            found[there] = self.block(int(block))[places[there], self._rows[there]]
        return found

    def block(self, number: int) -> FloatArray:
        """The numbers of as many indices as are computed at once; shape (indices, devices, width).

        Args:
            number: of the block, from 0.
        """
        block = self._blocks.get(number)
        if block is None:
            while len(self._blocks) >= _BLOCKS_KEPT:
                self._blocks.pop(next(iter(self._blocks)))
            block = self._blocks[number] = self._made(number)
        return block

    def _made(self, number: int) -> FloatArray:
        per_device = self._ahead * self._width
        made = np.empty((len(self._keys), per_device))
        # Setting one generator to each device's stream takes a tenth of making new generators.
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
