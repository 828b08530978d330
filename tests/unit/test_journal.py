"""The journal on a disk that is full, or was."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from muster.common.events import Started
from muster.common.journal import Journal
from muster.common.testing import ManualClock


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


def test_a_line_that_was_torn_does_not_tear_the_next(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"event":"a"}\n{"ev')
    journal = Journal(path, "server", 2, ManualClock())
    journal.add(Started("b"))
    journal.close()
    first, torn, last = path.read_bytes().splitlines()
    assert (first, torn, json.loads(last)["process"]) == (b'{"event":"a"}', b'{"ev', "b")
