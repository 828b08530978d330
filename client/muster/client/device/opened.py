"""Which secure sum a device has opened last: the one thing about secure sums that it keeps."""

import struct
from pathlib import Path

from muster.common.files import write_atomic

OPENED_FILE = "opened.bin"
"""Name of the file in the folder of a device."""

_RECORD = struct.Struct("<I32s")


class OpenedSums:
    """Allows one sum for each round, and none for rounds before.

    Args:
        folder: that of the device.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / OPENED_FILE
        self._newest: tuple[int, bytes] | None = None
        if self._path.exists():
            round, digest = _RECORD.unpack(self._path.read_bytes())
            self._newest = round, digest

    def may_open(self, round: int, digest: bytes) -> bool:
        """Whether the device may help to open this sum; if so, it is remembered first.

        Args:
            digest: of everything that tells sums of the round apart.

        Raises:
            OSError: the disk is full. Nothing has changed.
        """
        if self._newest is not None and self._newest[0] >= round:
            return self._newest == (round, digest)
        write_atomic(self._path, _RECORD.pack(round, digest), durable=True)
        self._newest = round, digest
        return True
