"""The journal's file, when not every byte can be written."""

import errno
import json
import os
from pathlib import Path

import pytest

from muster.common.journal import Journal
from muster.common.testing import ManualClock


def events(path: Path) -> list[str]:
    return [json.loads(line)["event"] for line in path.read_text().splitlines()]


def test_a_torn_last_line_does_not_swallow_the_next(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text('{"event": "first"}\n{"event": "to')
    journal = Journal(path, "server", 2, ManualClock())
    journal.add("second")
    journal.close()
    first, torn, second = path.read_text().splitlines()
    assert torn == '{"event": "to'
    assert [json.loads(line)["event"] for line in (first, second)] == ["first", "second"]


def test_what_a_full_disk_refused_is_written_by_the_next_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write, room = tmp_path / "journal.jsonl", os.write, [10]

    def write_as_far_as_it_goes(file: int, data: bytes) -> int:
        if room and room[0] == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(file, data[: room[0]] if room else data)
        if room:
            room[0] -= written
        return written

    journal = Journal(path, "server", 1, ManualClock())
    journal.add("first")
    monkeypatch.setattr(os, "write", write_as_far_as_it_goes)
    with pytest.raises(OSError, match="No space left"):
        journal.flush()
    journal.add("second")
    room.clear()
    journal.close()
    assert events(path) == ["first", "second"]
