"""The contract of a codec, and what all of them read bodies with."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from muster.common.errors import RemoteProtocolError
from muster.common.plugins import Plugin
from muster.common.tensors import Vector

Draws = Callable[[], np.random.Generator]
"""Makes the random numbers of one encoding; called by a codec that needs them."""

Pread = Callable[[int, int], bytes | memoryview]
"""`pread(length, offset)` of a body, in bytes and in the order of `os.pread`."""

BLOCK = 65_536
"""Entries that are looked at together."""


class EntryRange(NamedTuple):
    """How large the entries of a decoded vector are.

    Attributes:
        largest: largest absolute value; NaN or infinite where an entry is.
        squares: sum of squares, in float64.
    """

    largest: float = 0.0
    squares: float = 0.0

    def with_entries(self, entries: Vector) -> "EntryRange":
        """The extent of these entries too."""
        if not len(entries):
            return self
        doubles = entries.astype(np.float64)
        # A NaN passes through both reductions and through numpy's maximum, not through max().
        largest = np.maximum(self.largest, np.maximum(doubles.max(), -doubles.min()))
        return EntryRange(float(largest), self.squares + float(doubles @ doubles))


class Codec(Plugin):
    """A way to write an update down. Settings are fields; it remembers nothing."""

    feedback: ClassVar[bool] = False
    """Whether what a body leaves out is added to the device's next update (`compress`)."""

    @abstractmethod
    def length(self, parameters: int) -> int:
        """Bytes of every body of this many parameters."""

    @abstractmethod
    def encode(self, delta: Vector, draws: Draws) -> bytes | memoryview:
        """Return the body of an update. What is not finite in `delta` is not finite in `read`."""

    @abstractmethod
    def read(self, pread: Pread, start: int, stop: int, parameters: int) -> Vector:
        """Return entries [start, stop) of the decoded vector, of a body that passed `check`."""

    def check(self, pread: Pread, parameters: int) -> EntryRange:
        """Go through a whole body in blocks and return how large its entries are.

        What is not finite is well-formed: the sender's training diverged, or a value is too large
        for the codec. It is for the caller to refuse when it sees the extent.

        Raises:
            RemoteProtocolError: it is nothing that `encode` writes; says what is wrong.
        """
        extent = EntryRange()
        for start in range(0, parameters, BLOCK):
            stop = min(start + BLOCK, parameters)
            extent = extent.with_entries(self.read(pread, start, stop, parameters))
        return extent

    def decode(self, body: bytes | memoryview, parameters: int) -> Vector:
        """Return the whole vector of a body that is in memory.

        Raises:
            RemoteProtocolError: the body has another length.
        """
        if len(body) != (expected := self.length(parameters)):
            raise RemoteProtocolError(
                f"a body of {len(body)} bytes; {self.kind!r} writes {parameters} parameters in "
                f"{expected}"
            )
        return self.read(pread_of(body), 0, parameters, parameters)


def pread_of(body: bytes | memoryview) -> Pread:
    """Read a body that is in memory."""
    view = memoryview(body)
    return lambda length, offset: view[offset : offset + length]


def entries(
    pread: Pread, dtype: np.dtype[Any], start: int, stop: int, offset: int = 0
) -> npt.NDArray[Any]:
    """Entries [start, stop) of the array that begins at `offset`.

    Raises:
        RemoteProtocolError: the body ends before.
    """
    length = (stop - start) * dtype.itemsize
    raw = pread(length, offset + start * dtype.itemsize)
    if len(raw) != length:
        raise RemoteProtocolError(f"the body ends {length - len(raw)} bytes early")
    return np.frombuffer(raw, dtype)
