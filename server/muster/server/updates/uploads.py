"""Updates on their way in: checked chunk by chunk, large ones kept in files without names."""

import math
import os
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xxhash

from muster.common.compression import Codec, Pread, Whole
from muster.common.errors import RemoteProtocolError
from muster.common.exchange import Body, Reason, Receipt, Update
from muster.common.tensors import WIRE, Vector
from muster.wire import CHUNK_BYTES
from muster.wire.bodies import checksum

if TYPE_CHECKING:
    from muster.server.account.traffic import Transfer

_max, _min = np.maximum.reduce, np.minimum.reduce

_DAMAGED = Reason.CHECKSUM, "the body is not what its checksum says; send it again"


class TransferCost(NamedTuple):
    """What travelled for an update.

    Attributes:
        up: bytes of its body that came.
        down: bytes of the model that its device fetched for it.
        send_s: wall seconds in which it waited for its turn and was sent.
    """

    up: int = 0
    down: int = 0
    send_s: float = 0.0


@dataclass(frozen=True)
class UpdateFormat:
    """What a right body of a device looks like.

    Attributes:
        codec: how its updates travel.
        parameters: of the vector in it.
        max_norm: of the vector, when there is a limit.
    """

    codec: Codec
    parameters: int
    max_norm: float | None = None

    @cached_property
    def length(self) -> int:
        """Bytes."""
        return self.codec.length(self.parameters)

    @cached_property
    def inline_cost(self) -> TransferCost:
        """Of a right body that comes inside an answer; made once for all."""
        return TransferCost(self.length)

    @cached_property
    def plain(self) -> bool:
        """Whether a body is the float32 vector itself."""
        return isinstance(self.codec, Whole)


class InlineBody:
    """A whole update's body in memory: a small one."""

    def __init__(self, body: Body, form: UpdateFormat) -> None:
        self._form = form
        self._body = body
        self._measure = Measure(form)

    @property
    def largest(self) -> float:
        """The largest absolute entry, of a body without a fault."""
        return self._measure.largest

    def fault(self, update: Update) -> tuple[Reason, str] | None:
        """What is wrong with it, or None."""
        if checksum(self._body) != update.checksum:
            return _DAMAGED
        if len(self._body) != self._form.length:
            found = f"a body of {len(self._body)} bytes; {update.length} were announced"
            return Reason.LENGTH, found
        self._measure.add(self._body)
        return self._measure.fault(self._pread)

    def read(self, start: int, stop: int) -> Vector:
        return self._form.codec.read(self._pread, start, stop, self._form.parameters)

    def _pread(self, length: int, offset: int) -> memoryview:
        return memoryview(self._body)[offset : offset + length]

    def close(self) -> None:
        """Let go of the body."""
        self._body = b""


class Upload:
    """A large update's body as its chunks arrive.

    Attributes:
        update: as the newest of its headers states it.
        received: bytes held, in order and without gaps; where a broken upload resumes.
        asked_at: UNIX seconds when the device began to wait for its turn to send the next part;
            None while it sends.
        transfers: in which it has come so far.
        model_bytes: of the model that went to the device for this update.
        senders: calls that have sent of it; the newest alone goes on.
        base_version: of the round that it is for.
        verdict: the receipt, if its round was closed before all of it had come; or RESUME, if the
            device began to send another body instead.
    """

    def __init__(
        self, spills: "UploadFiles", update: Update, form: UpdateFormat, base_version: int
    ) -> None:
        self.update = update
        self.base_version = base_version
        self.asked_at: float | None = None
        self.transfers: list[Transfer] = []
        self.model_bytes = 0
        self.verdict: Receipt | None = None
        self._slot_attempt = 0
        self._spills = spills
        self._form = form
        self._file = spills.take()
        self._length = update.length
        self._hash = xxhash.xxh3_128()
        self._measure = Measure(form)
        self.received = self.senders = 0

    def ask(self, update: Update, at: float) -> None:
        """Note that the device asks for its turn to send the next part.

        Args:
            at: UNIX seconds when it began to wait at the server.
        """
        self.update = update
        if self.asked_at is None:
            self.asked_at = at
            if update.key.attempt != self._slot_attempt:  # it waited for a slot once in an attempt
                self.asked_at -= update.slot_wait_s
                self._slot_attempt = update.key.attempt

    def write(self, chunk: bytes) -> None:
        """Append a chunk.

        Raises:
            RemoteProtocolError: it is empty, longer than a chunk may be, cuts a number in two, or
                runs past the length that the header stated.
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
        self._hash.update(chunk)
        self._measure.add(chunk)
        os.pwrite(self._file, chunk, self.received)
        self.received = end

    @property
    def arrived(self) -> int:
        """Bytes of the body that have come, with those that came twice."""
        return sum(transfer.bytes for transfer in self.transfers)

    @property
    def send_s(self) -> float:
        """Wall seconds in which the device waited and sent."""
        return sum(transfer.wait_s + transfer.seconds for transfer in self.transfers)

    @property
    def complete(self) -> bool:
        return self.received == self._length

    @property
    def largest(self) -> float:
        """The largest absolute entry, of a complete body without a fault."""
        return self._measure.largest

    def fault(self, update: Update) -> tuple[Reason, str] | None:
        """What is wrong with it now that it is complete, or None."""
        if self._hash.digest() != update.checksum:
            return _DAMAGED
        return self._measure.fault(self._pread)

    def read(self, start: int, stop: int) -> Vector:
        return self._form.codec.read(self._pread, start, stop, self._form.parameters)

    def _pread(self, length: int, offset: int) -> bytes:
        return os.pread(self._file, length, offset)

    def close(self) -> None:
        """Give the file back."""
        if self._file >= 0:
            self._spills.give(self._file)
            self._file = -1


class UploadFiles:
    """Files for spills, used again and again: writing over pages that are there takes half as long.

    The files have no names (`O_TMPFILE`), so nothing is left of them whatever kills the server.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._free: list[int] = []

    def open(self, update: Update, form: UpdateFormat, base_version: int) -> Upload:
        """A spill for an update that begins to arrive."""
        return Upload(self, update, form, base_version)

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
    """What is learned of a body: its largest entry, its norm when asked.

    Of a whole float32 vector while it arrives; of another form once it is complete.
    """

    def __init__(self, form: UpdateFormat) -> None:
        self._form = form
        self._squares = 0.0
        self.largest = 0.0

    def add(self, piece: Body) -> None:
        """Look at the next piece of a body."""
        form = self._form
        if not form.plain:
            return
        # A piece of a number is no number; a body with one has the wrong length.
        entries = np.frombuffer(piece, WIRE, len(piece) // WIRE.itemsize)
        if len(entries):
            # A NaN passes through both reductions and through the comparison.
            extreme = max(float(_max(entries)), -float(_min(entries)))
            if not extreme <= self.largest:
                self.largest = extreme if not math.isnan(self.largest) else self.largest
        if form.max_norm is not None:
            doubles = entries.astype(np.float64)
            self._squares += float(doubles @ doubles)

    def fault(self, pread: Pread) -> tuple[Reason, str] | None:
        """What is wrong with a complete body that is what its checksum says, or None."""
        form = self._form
        if not form.plain:
            try:
                self.largest, self._squares = form.codec.check(pread, form.parameters)
            except RemoteProtocolError as error:
                return Reason.MALFORMED, str(error)
        if not math.isfinite(self.largest):
            return Reason.NOT_FINITE, "the update has a NaN or an infinity: training diverged there"
        if form.max_norm is not None and math.sqrt(self._squares) > form.max_norm:
            norm = math.sqrt(self._squares)
            return Reason.NORM, f"the update's norm is {norm:.6g}; at most {form.max_norm} may be"
        return None
