"""The events of a server and of its supervisor, followed together."""

import json
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from muster.emulator.following.live_events import live_events
from muster.emulator.run_folder.journal_tail import Tail


def event(name: str, role: str) -> dict[str, Any]:
    return {"event": name, "role": role}


def append(journal: Path, *events: dict[str, Any]) -> None:
    with journal.open("a") as file:
        file.writelines(json.dumps(each) + "\n" for each in events)


def test_what_the_supervisor_writes_is_told_although_the_server_is_silent(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    old, paused = event("restarted", "supervisor"), event("fault_applied", "supervisor")
    opened, ended = event("round_opened", "server"), event("ended", "server")
    append(journal, old)
    sent = SimpleQueue[str | None]()
    lines: Iterator[str] = iter(sent.get, None)
    followed = live_events(lines, Tail(journal))
    append(journal, opened)
    sent.put(json.dumps(opened))
    assert next(followed) == opened  # and not once more, from the journal
    append(journal, paused)
    assert next(followed) == paused
    append(journal, ended)
    sent.put(json.dumps(ended))
    sent.put(None)
    assert list(followed) == [ended]


def test_a_stream_that_breaks_is_told(tmp_path: Path) -> None:
    def breaks() -> Iterator[str]:
        yield json.dumps(event("enrolled", "server"))
        raise ConnectionError("the server is gone")

    followed = live_events(breaks(), Tail(tmp_path / "journal.jsonl"))
    assert next(followed)["event"] == "enrolled"
    with pytest.raises(ConnectionError, match="the server is gone"):
        next(followed)
