"""Sums of vectors modulo 2^128 for each entry, and the pads that hide them.

An exact sum is a whole number of steps of 2^-84 (`muster.common.exact_sum.Pieces`), so it can be
added modulo 2^128 without losing anything: it keeps below 2^115. A pad is the key stream of AES-256
in counter mode, so a padded vector is as good as random to everybody without its key.
"""

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from muster.common.exact_sum import BLOCK, ExactSum, Pieces

ENTRY_BYTES = 16

_WORD = np.dtype("<u8")
_ZEROS = memoryview(bytes(BLOCK * ENTRY_BYTES))
"""What is encrypted to get the key stream of a block."""
_HALF = np.uint64(32)

Words = npt.NDArray[np.uint64]


class PaddedSum:
    """A sum modulo 2^128 for each entry, in two words."""

    def __init__(self, parameters: int) -> None:
        self._words: Words = np.zeros(2 * parameters, _WORD)
        self._high, self._low = self._words[:parameters], self._words[parameters:]

    def add(self, high: Words, low: Words, at: int = 0) -> None:
        """Add entries from `at` on."""
        here = slice(at, at + len(high))
        self._low[here] += low
        self._high[here] += high + (self._low[here] < low)

    def _subtract(self, high: Words, low: Words, at: int) -> None:
        here = slice(at, at + len(high))
        borrow = self._low[here] < low
        self._low[here] -= low
        self._high[here] -= high + borrow

    def add_exact(self, sum: ExactSum) -> None:
        """Add an exact sum of at least one term."""
        for start in range(0, sum.parameters, BLOCK):
            pieces = sum.pieces(start, min(start + BLOCK, sum.parameters))
            low = pieces.middle.astype(_WORD) << _HALF
            if pieces.fine is not None:
                low |= pieces.fine
            self.add(pieces.coarse.astype(_WORD), low, start)

    def pad(self, key: bytes, positive: bool) -> None:
        """Add or subtract the pad of a key of 32 bytes."""
        stream = Cipher(AES(key), CTR(bytes(16))).encryptor()
        apply = self.add if positive else self._subtract
        for start in range(0, len(self._high), BLOCK):
            entries = min(BLOCK, len(self._high) - start)
            words = np.frombuffer(stream.update(_ZEROS[: entries * ENTRY_BYTES]), _WORD)
            apply(words[:entries], words[entries:], start)

    def add_encoded(self, body: bytes) -> None:
        """Add what `encoded` has made."""
        words = np.frombuffer(body, _WORD)
        self.add(words[: len(self._high)], words[len(self._high) :])

    def encoded(self) -> bytes:
        """The sum as bytes, `ENTRY_BYTES` for each entry."""
        return self._words.tobytes()

    def read(self, start: int, stop: int) -> Pieces:
        """What the sum has at entries [start, stop), if nothing pads it any more."""
        low = self._low[start:stop]
        coarse = self._high[start:stop].astype(np.int64)
        return Pieces(coarse, (low >> _HALF).astype(np.uint32), low.astype(np.uint32))

    def largest(self) -> float:
        """The largest absolute entry of the coarse grid."""
        return float(np.max(np.abs(self._high.astype(np.int64).astype(np.float64)))) * 2.0**-20
