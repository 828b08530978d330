"""Reads new events of a journal while it is being written."""

import os
from pathlib import Path
from typing import Any

import orjson


class Tail:
    """Reads complete new lines of a journal, starting at its current end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = path.stat().st_size if path.exists() else 0

    def new(self) -> list[dict[str, Any]]:
        """The events written since the last call."""
        try:
            file = os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return []
        try:
            size = os.fstat(file).st_size
            written = os.pread(file, size - self._offset, self._offset)
        finally:
            os.close(file)
        whole, newline, _ = written.rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        return [event for line in whole.splitlines() if (event := _event(line))]


def _event(line: bytes) -> dict[str, Any] | None:
    """The event of a line; None if the line is incomplete because of a full disk or a power cut."""
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return event if isinstance(event, dict) and "event" in event else None
