"""Bodies of updates while they arrive: in memory, or chunk by chunk in files without names."""

import math
import mmap
import os
import tempfile
import weakref
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import xxhash

from muster.common.compression import Codec, Pread, Whole
from muster.common.errors import RemoteProtocolError
from muster.common.exact_sum import squared_norm
from muster.common.exchange import Body, Held, Reason, Receipt, Update
from muster.common.masks import Mask
from muster.common.tensors import WIRE, Vector, sum_of_squares
from muster.server.account.traffic import Transfer, TransferCost
from muster.wire import CHUNK_BYTES
from muster.wire.bodies import checksum, decode_vector

_max, _min = np.maximum.reduce, np.minimum.reduce

_LARGEST = float(np.finfo(np.float32).max)
_ROUNDED = 1 + 1e-9
"""By how much a squared norm may exceed what its entries allow, because it is rounded."""

_DAMAGED = Reason.CHECKSUM, "the body does not match its checksum; send it again"


@dataclass(frozen=True)
class UpdateFormat:
    """The format that the body of an update must have.

    Attributes:
        codec: the codec with which the update is encoded.
        parameters: length of the vector in it.
        max_norm: the largest norm that the vector may have; None: no limit.
        mask: the coordinates of the model whose entries the vector has; None: all.
    """

    codec: Codec
    parameters: int
    max_norm: float | None = None
    mask: Mask | None = None

    @cached_property
    def length(self) -> int:
        """Length of a body in bytes."""
        return self.codec.length(self.parameters)

    @cached_property
    def inline_cost(self) -> TransferCost:
        """The cost of a body of the right length that arrives inside an answer. All such updates
        share this object."""
        return TransferCost(self.length)

    @cached_property
    def plain(self) -> bool:
        """Whether a body is the float32 vector itself."""
        return isinstance(self.codec, Whole)

    def read(self, pread: Pread, start: int, stop: int) -> Vector:
        """Return entries [start, stop) of the update, as an update of the whole model, shape
        (stop - start,). Those that the device did not train are 0."""
        codec, mask = self.codec, self.mask
        if mask is None:
            return codec.read(pread, start, stop, self.parameters)
        trained, first = mask.within(start, stop), mask.before(start)
        entries = np.zeros(stop - start, np.float32)
        if count := int(np.count_nonzero(trained)):
            entries[trained] = codec.read(pread, first, first + count, self.parameters)
        return entries


class InlineBody:
    """The body of a small update, in memory.

    Attributes:
        largest: the largest absolute entry, of a body without a fault.
    """

    def __init__(self, body: Body, format: UpdateFormat) -> None:
        self._format = format
        self._body = body
        self.largest = 0.0

    def fault(self, update: Update) -> tuple[Reason, str] | None:
        """Return the reason for refusing the body and a sentence about it, or None."""
        if checksum(self._body) != update.checksum:
            return _DAMAGED
        if len(self._body) != self._format.length:
            detail = f"a body of {len(self._body)} bytes; {update.length} were announced"
            return Reason.LENGTH, detail
        check = BodyCheck(self._format)
        check.add(self._body)
        fault = check.fault(self._pread)
        self.largest = check.largest
        return fault

    def read(self, start: int, stop: int) -> Vector:
        if self._format.plain and self._format.mask is None:
            return decode_vector(self._body, self._format.parameters)[start:stop]
        return self._format.read(self._pread, start, stop)

    def squared_norm(self, parameters: int) -> float:
        """‖Δ‖² of the update, as one of the whole model with that many parameters."""
        return squared_norm(self.read, parameters)

    def encoded(self) -> memoryview:
        """The body as it arrived."""
        return memoryview(self._body)

    def _pread(self, length: int, offset: int) -> memoryview:
        return memoryview(self._body)[offset : offset + length]

    def close(self) -> None:
        """Release the body."""
        self._body = b""


class HeldBody:
    """What the server knows of the body of an update that stays with its process."""

    def __init__(self, held: Held, format: UpdateFormat) -> None:
        self._format = format
        self.largest, self._squared_norm = held

    @property
    def norm(self) -> float:
        """‖Δ‖ of the update, as its process has measured it."""
        return math.sqrt(self._squared_norm)

    def fault(self, update: Update) -> tuple[Reason, str] | None:
        """Return the reason for refusing the update and a sentence about it, or None."""
        largest, squares = self.largest, self._squared_norm
        if fault := _fault_of(largest, squares, self._format.max_norm):
            return fault
        square = min(largest, _LARGEST) ** 2
        most = self._format.parameters * square * _ROUNDED
        if not (largest <= _LARGEST and square <= squares * _ROUNDED and squares <= most):
            stated = f"{largest:.6g} as its largest entry and {squares:.6g} as its squared norm"
            return Reason.MALFORMED, f"no update has {stated}"
        return None

    def squared_norm(self, parameters: int) -> float:
        """‖Δ‖² of the update, as its process has measured it."""
        return self._squared_norm

    def read(self, start: int, stop: int) -> Vector:
        """Fail: the server asks for a sum of held updates instead."""
        raise AssertionError("the vector of a held update was asked for")

    def encoded(self) -> memoryview:
        """Fail, as `read` does."""
        raise AssertionError("the body of a held update was asked for")

    def close(self) -> None:
        """Do nothing: there is no body."""


class ArrivingBytes:
    """Bytes that arrive chunk by chunk, in a file without a name.

    Attributes:
        received: bytes held, in order and without gaps; where a broken upload resumes.

    Args:
        length: the number of bytes that will arrive.
    """

    def __init__(self, files: "UploadFiles", length: int) -> None:
        self.received = 0
        self._files = files
        self._file: int | None = None  # from the first chunk on, which waits for room for both
        self._length = length
        self._hash = xxhash.xxh3_128()

    @property
    def complete(self) -> bool:
        """Whether all of them have arrived."""
        return self.received == self._length

    def append(self, chunk: bytes) -> None:
        """Append a chunk.

        Raises:
            OSError: the disk is full, also for the file. The chunk can be appended again.
        """
        if self._file is None:
            self._file = self._files.take()
        rest, at = memoryview(chunk), self.received
        while rest:  # a disk that is almost full takes a part
            written = os.pwrite(self._file, rest, at)
            rest, at = rest[written:], at + written
        self._hash.update(chunk)
        self.received += len(chunk)

    def checksum(self) -> bytes:
        """XXH3-128 of the bytes that have arrived."""
        return self._hash.digest()

    def pread(self, length: int, offset: int) -> bytes:
        """Read bytes that have arrived, like `os.pread`."""
        assert self._file is not None
        return os.pread(self._file, length, offset)

    def mapped(self) -> memoryview:
        """All of the bytes, mapped from their file until it is closed."""
        assert self._file is not None
        return memoryview(mmap.mmap(self._file, self._length, access=mmap.ACCESS_READ))

    def close(self) -> None:
        """Return the file to `UploadFiles`."""
        if self._file is not None:
            self._files.give(self._file)
            self._file = None


class WholeBytes:
    """Bytes that came in one message, in memory; see `ArrivingBytes`."""

    def __init__(self, data: bytes, length: int) -> None:
        self.received = len(data)
        self.complete = self.received == length
        self._data = data

    def checksum(self) -> bytes:
        return xxhash.xxh3_128_digest(self._data)

    def pread(self, length: int, offset: int) -> bytes:
        return self._data[offset : offset + length]

    def close(self) -> None:
        """There is no file."""


class Upload:
    """The body of a large update while its chunks arrive.

    Attributes:
        update: the update as its newest header states it.
        asked_at: UNIX seconds when the device began to wait for its turn to send the next part;
            None while it sends.
        transfers: the transfers in which it has arrived so far.
        model_bytes: bytes of the model that the device fetched for this update.
        senders: the number of calls that have sent parts of it. Only the newest call may go on.
        base_version: the base version of its round.
        verdict: its receipt, if its round was closed before all of it had arrived. The receipt is
            RESUME if the device began to send another body instead.
    """

    def __init__(
        self, files: "UploadFiles", update: Update, format: UpdateFormat, base_version: int
    ) -> None:
        self.update = update
        self.base_version = base_version
        self.asked_at: float | None = None
        self.transfers: list[Transfer] = []
        self.model_bytes = 0
        self.verdict: Receipt | None = None
        self._slot_attempt = 0
        self._format = format
        self._length = update.length
        self._bytes = ArrivingBytes(files, update.length)
        self._check = BodyCheck(format)
        self.senders = 0

    @property
    def received(self) -> int:
        """Bytes held, in order and without gaps; where a broken upload resumes."""
        return self._bytes.received

    def ask(self, update: Update, at: float) -> None:
        """Record that the device waits for its turn to send the next part.

        Args:
            at: UNIX seconds when it began to wait at the server.
        """
        self.update = update
        if self.asked_at is None:
            self.asked_at = at
            # A device waits for a slot only once in an attempt.
            if update.key.attempt != self._slot_attempt:
                self.asked_at -= update.slot_wait_s
                self._slot_attempt = update.key.attempt

    def write(self, chunk: bytes) -> None:
        """Append a chunk.

        Raises:
            RemoteProtocolError: the chunk is empty, longer than a chunk may be, cuts a number in
                two, or goes beyond the length that the header stated.
            OSError: the disk is full, also for the file. The chunk can be written again.
        """
        end = self.received + len(chunk)
        cuts_a_number = len(chunk) % WIRE.itemsize and end < self._length
        if not 0 < len(chunk) <= CHUNK_BYTES or cuts_a_number:
            raise RemoteProtocolError(
                f"a chunk of {len(chunk)} bytes at {self.received} of {self._length}; expected "
                f"a multiple of {WIRE.itemsize} bytes, from {WIRE.itemsize} to {CHUNK_BYTES} at a "
                f"time"
            )
        if end > self._length:
            raise RemoteProtocolError(
                f"a chunk of {len(chunk)} bytes at {self.received} of {self._length}: the header "
                f"stated fewer"
            )
        self._bytes.append(chunk)
        self._check.add(chunk)

    @property
    def arrived(self) -> int:
        """Bytes of the body that have arrived; bytes that arrived twice count twice."""
        return sum(transfer.bytes for transfer in self.transfers)

    @property
    def send_s(self) -> float:
        """Wall seconds in which the device waited and sent."""
        return sum(transfer.wait_s + transfer.seconds for transfer in self.transfers)

    @property
    def complete(self) -> bool:
        """Whether the whole body has arrived."""
        return self._bytes.complete

    @property
    def largest(self) -> float:
        """The largest absolute entry of a complete body without a fault."""
        return self._check.largest

    def fault(self, update: Update) -> tuple[Reason, str] | None:
        """Return the reason for refusing the complete body and a sentence about it, or None."""
        if self._bytes.checksum() != update.checksum:
            return _DAMAGED
        return self._check.fault(self._bytes.pread)

    def read(self, start: int, stop: int) -> Vector:
        return self._format.read(self._bytes.pread, start, stop)

    def squared_norm(self, parameters: int) -> float:
        """‖Δ‖² of a complete update, as one of the whole model with that many parameters."""
        return squared_norm(self.read, parameters)

    def encoded(self) -> memoryview:
        """The complete body as it arrived, mapped from its file until it is closed."""
        return self._bytes.mapped()

    def close(self) -> None:
        """Return the file to `UploadFiles`."""
        self._bytes.close()


ReceivedBody = InlineBody | HeldBody | Upload
"""The body of an update that has arrived, or what stands in for it."""


class UploadFiles:
    """The files of uploads. They are reused, because overwriting existing pages takes half as long.

    The files have no names (`O_TMPFILE`), so none is left behind, even if the server is killed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._free: list[int] = []
        self._opened: list[int] = []
        # Every upload refers to this object, so no upload needs its file any more when it is gone.
        weakref.finalize(self, _close, self._opened)

    def open(self, update: Update, format: UpdateFormat, base_version: int) -> Upload:
        """Return an upload for an update that begins to arrive."""
        return Upload(self, update, format, base_version)

    def take(self) -> int:
        """Return the descriptor of a file. The next upload overwrites what the file holds.

        Raises:
            OSError: the disk is full.
        """
        if self._free:
            return self._free.pop()
        with tempfile.TemporaryFile(dir=self._folder) as file:
            self._opened.append(os.dup(file.fileno()))
        return self._opened[-1]

    def give(self, file: int) -> None:
        """Take back a file that is not used any more."""
        self._free.append(file)


def _close(files: list[int]) -> None:
    for file in files:
        os.close(file)


class BodyCheck:
    """Checks that the entries of a body are finite and that their norm is within its limit.

    A plain float32 vector is read while it arrives, another format when it is complete.

    Attributes:
        largest: the largest absolute entry that was read.
    """

    def __init__(self, format: UpdateFormat) -> None:
        self._format = format
        self._squares = 0.0
        self.largest = 0.0

    def add(self, piece: Body) -> None:
        """Read the next piece of a body."""
        format = self._format
        if not format.plain:
            return
        # Part of a number at the end is left out: such a body has the wrong length anyway.
        entries = np.frombuffer(piece, WIRE, len(piece) // WIRE.itemsize)
        if len(entries):
            # A NaN survives both reductions and makes the comparison false.
            extreme = max(float(_max(entries)), -float(_min(entries)))
            if not extreme <= self.largest:
                self.largest = extreme if not math.isnan(self.largest) else self.largest
        if format.max_norm is not None:
            self._squares += sum_of_squares(entries.astype(np.float64))

    def fault(self, pread: Pread) -> tuple[Reason, str] | None:
        """Return the reason for refusing a complete body and a sentence about it, or None. The
        body must match its checksum."""
        format = self._format
        if not format.plain:
            try:
                self.largest, self._squares = format.codec.check(pread, format.parameters)
            except RemoteProtocolError as error:
                return Reason.MALFORMED, str(error)
        return _fault_of(self.largest, self._squares, format.max_norm)


def _fault_of(
    largest: float, squared_norm: float, max_norm: float | None
) -> tuple[Reason, str] | None:
    """Return the reason for refusing an update because of its entries, or None."""
    if not (math.isfinite(largest) and math.isfinite(squared_norm)):
        return Reason.NOT_FINITE, "the update has a NaN or an infinity: its training diverged"
    if max_norm is not None and not math.sqrt(squared_norm) <= max_norm:
        norm = math.sqrt(squared_norm)
        return Reason.NORM, f"the update's norm is {norm:.6g}; at most {max_norm} is allowed"
    return None
