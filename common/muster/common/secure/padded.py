"""Sums of vectors modulo a power of 2 for each entry, and the pads that hide them.

A pad is the key stream of AES-256 in counter mode, so a padded vector is as good as random to
everybody without its key.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from muster.common.exact_sum import (
    BLOCK,
    GRIDS,
    ExactSum,
    Pieces,
    ReadPieces,
    Term,
    squared_norm,
)
from muster.common.masks import Mask
from muster.common.secure.grid import EXACT_BYTES, Grid
from muster.common.secure.noise import discrete_gaussian
from muster.common.seeds import BoolArray

_WORD = np.dtype("<u8")
_ZEROS = memoryview(bytes(BLOCK * EXACT_BYTES))
"""What is encrypted to get the key stream of a block."""
_CIPHER_BLOCK = 16
_HALF = np.uint64(32)

Words = npt.NDArray[Any]
"""Unsigned whole numbers of one width."""


class PaddedSum(ABC):
    """A sum modulo a power of 2 for each entry.

    Attributes:
        parameters: length of the vectors.
        entry_bytes: bytes of an entry.

    Args:
        word: the type of the numbers of which an entry has one or more.
    """

    def __init__(self, parameters: int, word: np.dtype[Any], entry_bytes: int) -> None:
        self.parameters, self.entry_bytes = parameters, entry_bytes
        self._word = word
        self._words: Words = np.zeros(parameters * entry_bytes // word.itemsize, word)

    @abstractmethod
    def add_term(self, term: Term, draws: np.random.Generator) -> None:
        """Add a weighted vector, with the noise of the grid.

        Args:
            draws: for stochastic rounding and noise, if the sum has a grid.
        """

    @abstractmethod
    def read(self, start: int, stop: int) -> Pieces:
        """What the sum has at entries [start, stop), if nothing pads it any more."""

    @abstractmethod
    def largest(self) -> float:
        """The largest absolute entry; of an exact sum, that of its coarse grid."""

    @abstractmethod
    def _apply(self, words: Words, start: int, stop: int, positive: bool) -> None:
        """Add or subtract the words of a block of entries."""

    def pad(self, pads: Sequence[tuple[bytes, bool]]) -> None:
        """Add pads, or subtract them.

        Args:
            pads: keys of 32 bytes, each with whether its pad is added.
        """
        streams = [(Cipher(AES(key), CTR(bytes(16))).encryptor(), sign) for key, sign in pads]
        room = bytearray(BLOCK * self.entry_bytes + _CIPHER_BLOCK)
        # All pads of a block, before the next one, so that the block stays in the cache.
        for start in range(0, self.parameters, BLOCK):
            stop = min(start + BLOCK, self.parameters)
            size = (stop - start) * self.entry_bytes
            words = np.frombuffer(room, self._word, size // self._word.itemsize)
            for stream, positive in streams:
                stream.update_into(_ZEROS[:size], room)
                self._apply(words, start, stop, positive)

    @abstractmethod
    def add_encoded(self, body: bytes) -> None:
        """Add what `encoded` has made."""

    def encoded(self) -> bytes:
        """The sum as bytes."""
        return self._words.tobytes()


class ExactPaddedSum(PaddedSum):
    """A sum modulo 2^128, in two words for each entry.

    An exact sum is a whole number of steps of 2^-84 (`muster.common.exact_sum.Pieces`), and keeps
    below 2^115, so nothing is lost.
    """

    def __init__(self, parameters: int) -> None:
        super().__init__(parameters, _WORD, EXACT_BYTES)
        self._high, self._low = self._words[:parameters], self._words[parameters:]

    def _apply(self, words: Words, start: int, stop: int, positive: bool) -> None:
        high, low = words[: stop - start], words[stop - start :]
        of_high, of_low = self._high[start:stop], self._low[start:stop]
        if positive:
            of_low += low
            of_high += high + (of_low < low)
        else:
            borrow = of_low < low
            of_low -= low
            of_high -= high + borrow

    def add_term(self, term: Term, draws: np.random.Generator) -> None:
        exact = ExactSum(self.parameters)
        exact.add_terms([term])
        self.add_exact(exact)

    def add_exact(self, sum: ExactSum) -> None:
        """Add an exact sum of at least one term."""
        for start in range(0, self.parameters, BLOCK):
            stop = min(start + BLOCK, self.parameters)
            pieces = sum.pieces(start, stop)
            low = pieces.middle.astype(_WORD) << _HALF
            if pieces.fine is not None:
                low |= pieces.fine
            self._apply(np.concatenate([pieces.coarse.astype(_WORD), low]), start, stop, True)

    def add_encoded(self, body: bytes) -> None:
        self._apply(np.frombuffer(body, _WORD), 0, self.parameters, True)

    def read(self, start: int, stop: int) -> Pieces:
        return _pieces(self._high[start:stop], self._low[start:stop])

    def largest(self) -> float:
        coarse = self._high.astype(np.int64).astype(np.float64)
        return float(np.max(np.abs(coarse))) * 2.0 ** GRIDS[0]


class GridPaddedSum(PaddedSum):
    """A sum of vectors on a grid, in one word for each entry."""

    def __init__(self, parameters: int, grid: Grid) -> None:
        super().__init__(parameters, np.dtype(f"<u{grid.entry_bytes}"), grid.entry_bytes)
        self._grid = grid
        self._signed = self._words.view(f"<i{grid.entry_bytes}")

    def _apply(self, words: Words, start: int, stop: int, positive: bool) -> None:
        here = self._words[start:stop]
        if positive:
            here += words
        else:
            here -= words

    def add_term(self, term: Term, draws: np.random.Generator) -> None:
        if self._grid.norm is None:
            self._add_rounded(self._signed, term, draws)
        else:
            self._add_clipped(term, self._grid.norm, draws)
        for start, stop in self._blocks() if self._grid.deviation else ():
            noise = discrete_gaussian(self._grid.deviation / self._grid.step, stop - start, draws)
            self._signed[start:stop] += noise.astype(self._signed.dtype)

    def _add_clipped(self, term: Term, norm: float, draws: np.random.Generator) -> None:
        limit = norm * (1 - 1e-9)  # because the norms here are rounded too
        length = term.weight * math.sqrt(squared_norm(term.read, self.parameters))
        if length > limit:
            term = term._replace(weight=term.weight * limit / length)
        numbers = np.zeros_like(self._signed)
        self._add_rounded(numbers, term, draws)
        rounded = squared_norm(lambda start, stop: numbers[start:stop], self.parameters)
        if math.sqrt(rounded) * self._grid.step > limit:
            numbers[:] = 0
            self._add_rounded(numbers, term, None)
        self._signed += numbers

    def _add_rounded(self, numbers: Words, term: Term, draws: np.random.Generator | None) -> None:
        for start, stop in self._blocks():
            whole = self._grid.whole(term.read(start, stop), term.weight, draws)
            numbers[start:stop] += whole.astype(numbers.dtype)

    def _blocks(self) -> Iterator[tuple[int, int]]:
        for start in range(0, self.parameters, BLOCK):
            yield start, min(start + BLOCK, self.parameters)

    def add_encoded(self, body: bytes) -> None:
        self._words += np.frombuffer(body, self._word)

    def read(self, start: int, stop: int) -> Pieces:
        # The finest step of an exact sum is 2^-84, and its words have 64 bits each.
        steps, shift = self._signed[start:stop].astype(np.int64), self._grid.exponent - GRIDS[-1]
        if shift >= 64:
            return _pieces(steps << (shift - 64), np.zeros(stop - start, _WORD))
        low = steps.astype(_WORD) << np.uint64(shift)
        return _pieces(steps >> min(64 - shift, 63), low)

    def largest(self) -> float:
        return float(np.max(np.abs(self._signed.astype(np.float64)))) * 2.0**self._grid.exponent


def padded_sum(parameters: int, grid: Grid | None) -> PaddedSum:
    """A new sum; None: it is exact."""
    return ExactPaddedSum(parameters) if grid is None else GridPaddedSum(parameters, grid)


def placed(sum: PaddedSum, mask: Mask | None) -> ReadPieces:
    """How to read a sum at the entries of the whole model, where it is 0 outside the mask.

    Args:
        mask: the coordinates of the model whose entries the sum has; None: all.
    """
    if mask is None:
        return sum.read

    def read(start: int, stop: int) -> Pieces:
        inside, first = mask.within(start, stop), mask.before(start)
        coarse, middle, fine = sum.read(first, first + int(np.count_nonzero(inside)))
        spread = partial(_spread, inside)
        return Pieces(spread(coarse), spread(middle), None if fine is None else spread(fine))

    return read


def _spread(inside: BoolArray, entries: Words) -> Words:
    whole = np.zeros(len(inside), entries.dtype)
    whole[inside] = entries
    return whole


def _pieces(high: Words, low: Words) -> Pieces:
    """The pieces of whole steps of 2^-84, in two words each."""
    return Pieces(high.astype(np.int64), (low >> _HALF).astype(np.uint32), low.astype(np.uint32))
