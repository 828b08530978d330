"""Which update a device has padded last for a secure sum, and which sum it has opened: all that it
keeps of secure sums."""

import struct
from pathlib import Path
from typing import NamedTuple

from muster.common.files import write_atomic

OPENED_FILE = "opened.bin"
"""Name of the file in the folder of a device."""

_RECORD = struct.Struct("<I32s32s")
_NONE = bytes(32)


class _Record(NamedTuple):
    """What is known of the newest round.

    Attributes:
        padded: the digest of the update that was padded.
        opened: the digest of the sum that was opened; zeros: none was.
    """

    round: int
    padded: bytes = _NONE
    opened: bytes = _NONE


class OpenedSums:
    """Allows one padded update and one sum for each round, and none for rounds before.

    Args:
        folder: that of the device.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / OPENED_FILE
        self._newest = _Record(-1)
        if self._path.exists():
            self._newest = _Record(*_RECORD.unpack(self._path.read_bytes()))

    def may_pad(self, round: int, digest: bytes) -> bool:
        """Whether the device may send this update under pads; if so, it is remembered first.

        Otherwise it could be in two sums of the round with two weights, and the difference of these
        sums would be the update.

        Args:
            digest: of the update and its weight.

        Raises:
            OSError: the disk is full. Nothing has changed.
        """
        if self._newest.round < round:
            self._remember(_Record(round, digest))
        return self._newest[:2] == (round, digest)

    def may_open(self, round: int, digest: bytes) -> bool:
        """Whether the device may help to open this sum; if so, it is remembered first.

        Args:
            round: of which it has padded its update.
            digest: of everything that tells sums of the round apart.

        Raises:
            OSError: the disk is full. Nothing has changed.
        """
        if self._newest.round == round and self._newest.opened == _NONE:
            self._remember(self._newest._replace(opened=digest))
        return self._newest.round == round and self._newest.opened == digest

    def _remember(self, record: _Record) -> None:
        write_atomic(self._path, _RECORD.pack(*record), durable=True)
        self._newest = record
