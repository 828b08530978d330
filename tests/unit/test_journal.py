"""The journal on a disk that is full, or was."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from muster.common.events import Started
from muster.common.journal import Journal
from muster.common.sealed_lines import is_sealed
from muster.common.testing import ManualClock
from muster.emulator.run_folder.journal_tail import journal_events


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_a_write_that_takes_only_a_part_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path / "journal.jsonl", "server", 1, ManualClock())
    monkeypatch.setattr(
        os, "write", lambda file, data, write=os.write: write(file, bytes(data[:7]))
    )
    journal.add(Started("a"))
    journal.add(Started("b"))
    journal.close()
    assert [event["process"] for event in lines(tmp_path / "journal.jsonl")] == ["a", "b"]


def test_a_journal_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic links"):
        Journal(tmp_path / "journal.jsonl", "supervisor", 2, ManualClock())
    assert not (tmp_path / "other").exists()


def test_what_could_not_be_written_is_told_once_and_closing_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, "server", 1, ManualClock())

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    journal.add(Started("a"))
    with pytest.raises(OSError, match="No space left on device") as error:
        journal.flush()
    assert error.value.filename == str(path)
    journal.close()


def test_lines_that_found_no_room_wait_for_it_and_none_is_written_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, room = tmp_path / "journal.jsonl", [130]
    journal = Journal(path, "server", 1, ManualClock())

    def write(file: int, data: bytes, write: Any = os.write) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(file, data[: room[0]])
        room[0] -= written
        return int(written)

    monkeypatch.setattr(os, "write", write)
    for name in "abc":
        journal.add(Started(name))
    with pytest.raises(OSError, match="No space"):
        journal.flush()
    assert journal.waiting
    first = path.read_bytes()
    assert len(first) == 130
    assert 0 < first.count(b"\n") < 3
    assert not first.endswith(b"\n")
    with open(path, "ab") as other:  # another process finds room first
        other.write(b'\n{"event":"other","process":"x"}\n')
    room[0] = 10_000
    journal.close()
    whole = [line for line in path.read_bytes().splitlines() if line.endswith(b"}")]
    assert [json.loads(line)["process"] for line in whole] in (["a", "x", "b", "c"],)


def test_a_line_that_was_torn_does_not_tear_the_next(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"event":"a"}\n{"ev')
    journal = Journal(path, "server", 2, ManualClock())
    journal.add(Started("b"))
    journal.close()
    first, torn, last = path.read_bytes().splitlines()
    assert (first, torn, json.loads(last)["process"]) == (b'{"event":"a"}', b'{"ev', "b")


def test_the_events_of_a_journal_are_read_without_torn_lines(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    assert not list(journal_events(path))
    path.write_bytes(b'{"event":"a","n":1}\n{"event":"b"\n[1]\n{"n":2}\n{"event":"b","n":3}\n{"ev')
    assert [event["n"] for event in journal_events(path)] == [1, 3]
    assert [event["n"] for event in journal_events(path, '"event":"b', '"event":"c')] == [3]


def test_every_changed_bit_of_a_line_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, "server", 1, ManualClock())
    shown = journal.add(Started("a"))
    journal.close()
    data = path.read_bytes()
    assert [json.loads(shown)] == list(journal_events(path))
    for bit in range(8 * (len(data) - 1)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        # Without the mark of a checksum the line is that of an older version of muster, or none.
        marked = all(map(is_sealed, bytes(flipped).splitlines()))
        assert not (marked and list(journal_events(path))), bytes(flipped)
