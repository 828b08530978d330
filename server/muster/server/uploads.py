"""Updates on their way in: checked chunk by chunk, large ones kept in files without names."""

import math
import os
import tempfile
from pathlib import Path

import numpy as np
import xxhash

from muster.common.errors import RemoteProtocolError
from muster.common.exchange import Reason, Update
from muster.common.tensors import WIRE, Vector
from muster.wire import CHUNK_BYTES

_max, _min = np.maximum.reduce, np.minimum.reduce


class Body:
    """A whole update's body in memory: a small one."""

    def __init__(self, body: bytes, max_norm: float | None) -> None:
        self._vector = np.frombuffer(body, WIRE).astype(np.float32, copy=False)
        self.measure = Measure(max_norm)
        self.measure.add(body)

    def read(self, start: int, stop: int) -> Vector:
        return self._vector[start:stop]

    def close(self) -> None:
        """Let go of the body."""
        self._vector = self._vector[:0].copy()


class Spill:
    """A large update's body as its chunks arrive.

    Attributes:
        received: bytes held, in order and without gaps; where a broken upload resumes.
    """

    def __init__(self, spills: "Spills", update: Update, max_norm: float | None) -> None:
        self._spills = spills
        self._file = spills.take()
        self._length = update.length
        self.measure = Measure(max_norm)
        self.received = 0

    def write(self, chunk: bytes) -> None:
        """Append a chunk.

        Raises:
            RemoteProtocolError: it is longer than a chunk may be, cuts a number in two, or runs
                past the length that the header stated.
        """
        end = self.received + len(chunk)
        if len(chunk) > CHUNK_BYTES or len(chunk) % WIRE.itemsize or end > self._length:
            raise RemoteProtocolError(
                f"a chunk of {len(chunk)} bytes at {self.received} of {self._length}; expected "
                f"whole numbers of {WIRE.itemsize} bytes, at most {CHUNK_BYTES} at a time"
            )
        self.measure.add(chunk)
        os.pwrite(self._file, chunk, self.received)
        self.received = end

    @property
    def closed(self) -> bool:
        return self._file < 0

    @property
    def complete(self) -> bool:
        return self.received == self._length

    def read(self, start: int, stop: int) -> Vector:
        size = WIRE.itemsize
        raw = os.pread(self._file, (stop - start) * size, start * size)
        return np.frombuffer(raw, WIRE).astype(np.float32, copy=False)

    def close(self) -> None:
        """Give the file back."""
        if self._file >= 0:
            self._spills.give(self._file)
            self._file = -1


class Spills:
    """Files for spills, used again and again: writing over pages that are there takes half as long.

    The files have no names (`O_TMPFILE`), so nothing is left of them whatever kills the server.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._free: list[int] = []

    def open(self, update: Update, max_norm: float | None) -> Spill:
        """A spill for an update."""
        return Spill(self, update, max_norm)

    def take(self) -> int:
        """A file descriptor; what the file held before is written over."""
        if self._free:
            return self._free.pop()
        with tempfile.TemporaryFile(dir=self._folder) as file:
            return os.dup(file.fileno())

    def give(self, file: int) -> None:
        """Take a file back."""
        self._free.append(file)


class Measure:
    """What is learned of a body while it arrives: checksum, largest entry, norm when asked."""

    def __init__(self, max_norm: float | None) -> None:
        self._hash = xxhash.xxh3_128()
        self._max_norm = max_norm
        self._squares = 0.0
        self._finite = True
        self.largest = 0.0

    def add(self, piece: bytes) -> None:
        self._hash.update(piece)
        entries = np.frombuffer(piece, WIRE)
        if len(entries):
            # A NaN passes through both reductions.
            extreme = max(float(_max(entries)), -float(_min(entries)))
            self._finite = self._finite and math.isfinite(extreme)
            self.largest = max(self.largest, extreme)
        if self._max_norm is not None:
            doubles = entries.astype(np.float64)
            self._squares += float(doubles @ doubles)

    def fault(self, update: Update) -> tuple[Reason, str] | None:
        """What is wrong with a complete body, or None."""
        if self._hash.digest() != update.checksum:
            return Reason.CHECKSUM, "the body is not what its checksum says; send it again"
        if not self._finite:
            return Reason.NOT_FINITE, "the update has a NaN or an infinity: training diverged there"
        if self._max_norm is not None and math.sqrt(self._squares) > self._max_norm:
            norm = math.sqrt(self._squares)
            return Reason.NORM, f"the update's norm is {norm:.6g}; at most {self._max_norm} may be"
        return None
