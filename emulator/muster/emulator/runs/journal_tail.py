"""Reading the journal while it is written."""

import os
from pathlib import Path
from typing import Any

import orjson


class Tail:
    """New whole lines of a journal, from its present end on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = path.stat().st_size if path.exists() else 0

    def new(self) -> list[dict[str, Any]]:
        """Events written since the last call."""
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
    """The event of a line; None where a full disk or a power cut tore it."""
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return event if isinstance(event, dict) and "event" in event else None
