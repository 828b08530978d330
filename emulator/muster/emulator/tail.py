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
        return [orjson.loads(line) for line in whole.splitlines()]
