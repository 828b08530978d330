"""The files in which updates arrive."""

import errno
import os
from pathlib import Path

import pytest

from muster.common.compression import Whole
from muster.common.exchange import Key, Update
from muster.server.updates.uploads import UpdateFormat, UploadFiles
from muster.wire.bodies import checksum

FORMAT = UpdateFormat(Whole(kind="none"), 2)
BODY = b"\x00\x00\x80\x3f\x00\x00\x00\x40"


class FullOnce(UploadFiles):
    """Files on a disk that has no room for the first one."""

    room = False

    def take(self) -> int:
        if not self.room:
            self.room = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().take()


def test_a_chunk_can_be_written_again_if_there_was_no_room_for_its_file(tmp_path: Path) -> None:
    sent = Update(Key("a", 3, 1), 5, checksum(BODY), len(BODY), 0.0, 0.0, 0.0)
    upload = FullOnce(tmp_path).open(sent, FORMAT, 0)
    with pytest.raises(OSError, match="No space left"):
        upload.write(BODY)
    assert upload.received == 0
    upload.write(BODY)
    assert upload.complete
    assert bytes(upload.encoded()) == BODY
    assert upload.fault(sent) is None
