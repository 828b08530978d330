"""The contract of a codec, and functions with which codecs read bodies."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from muster.common.errors import RemoteProtocolError
from muster.common.plugins import Plugin
from muster.common.tensors import Vector, sum_of_squares

Draws = Callable[[], np.random.Generator]
"""Makes the random generator for one encoding; called only by codecs that need random numbers."""

Pread = Callable[[int, int], bytes | memoryview]
"""`pread(length, offset)` reads from a body, in bytes; the arguments are in the order of
`os.pread`."""

BLOCK = 65_536
"""Number of entries that are checked at once."""


class EntryRange(NamedTuple):
    """The range of the entries of a decoded vector.

    Attributes:
        largest: largest absolute value; NaN or infinite if an entry is.
        squares: sum of squares, in float64.
    """

    largest: float = 0.0
    squares: float = 0.0

    def with_entries(self, entries: Vector) -> "EntryRange":
        """The range that also includes these entries."""
        if not len(entries):
            return self
        with np.errstate(invalid="ignore"):  # of a signalling NaN
            doubles = entries.astype(np.float64)
        # A NaN passes through both reductions and through numpy's maximum, not through max().
        largest = np.maximum(self.largest, np.maximum(doubles.max(), -doubles.min()))
        return EntryRange(float(largest), self.squares + sum_of_squares(doubles))


class Codec(Plugin):
    """A codec for updates. Settings are fields; a codec has no other state."""

    feedback: ClassVar[bool] = False
    """Whether the residual of a body is added to the device's next update (see `compress`)."""

    @abstractmethod
    def length(self, parameters: int) -> int:
        """Length in bytes of every body of this many parameters."""

    @abstractmethod
    def encode(self, delta: Vector, draws: Draws) -> bytes | memoryview:
        """Return the body of an update. Entries of `delta` that are not finite must be read as not
        finite."""

    @abstractmethod
    def read(self, pread: Pread, start: int, stop: int, parameters: int) -> Vector:
        """Return entries [start, stop) of the decoded vector. The body has passed `check`."""

    def check(self, pread: Pread, parameters: int) -> EntryRange:
        """Check a whole body in blocks and return the range of its entries.

        A body with entries that are not finite is well-formed: the sender's training diverged, or a
        value is too large for the codec. The caller sees them in the range and may refuse the body.

        Raises:
            RemoteProtocolError: `encode` cannot have written this body; the message says why.
        """
        extent = EntryRange()
        for start in range(0, parameters, BLOCK):
            stop = min(start + BLOCK, parameters)
            extent = extent.with_entries(self.read(pread, start, stop, parameters))
        return extent

    def decode(self, body: bytes | memoryview, parameters: int) -> Vector:
        """Return the whole vector of a body in memory.

        Raises:
            RemoteProtocolError: the body has the wrong length.
        """
        if len(body) != (expected := self.length(parameters)):
            raise RemoteProtocolError(
                f"a body of {len(body)} bytes; {self.kind!r} writes {parameters} parameters in "
                f"{expected}"
            )
        return self.read(pread_of(body), 0, parameters, parameters)


def pread_of(body: bytes | memoryview) -> Pread:
    """Return the `Pread` of a body in memory."""
    view = memoryview(body)
    return lambda length, offset: view[offset : offset + length]


def entries(
    pread: Pread, dtype: np.dtype[Any], start: int, stop: int, offset: int = 0
) -> npt.NDArray[Any]:
    """Entries [start, stop) of the array that begins at `offset`.

    Raises:
        RemoteProtocolError: the body ends before `stop`.
    """
    length = (stop - start) * dtype.itemsize
    raw = pread(length, offset + start * dtype.itemsize)
    if len(raw) != length:
        raise RemoteProtocolError(f"the body ends {length - len(raw)} bytes early")
    return np.frombuffer(raw, dtype)
