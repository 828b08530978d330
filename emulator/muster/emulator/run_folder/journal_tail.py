"""Reads the events of a journal, also while it is being written."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from muster.common.sealed_lines import object_in


class Tail:
    """Reads complete new lines of a journal, starting at its current end.

    Args:
        from_start: start at the beginning of the journal instead.
    """

    def __init__(self, path: Path, *, from_start: bool = False) -> None:
        self._path = path
        self._offset = path.stat().st_size if path.exists() and not from_start else 0

    def new(self, most_bytes: int | None = None) -> list[dict[str, Any]]:
        """The events written since the last call.

        Args:
            most_bytes: how much of the journal is read at once. If the first line is longer, all of
                the journal is read.
        """
        try:
            file = os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return []
        try:
            rest = os.fstat(file).st_size - self._offset
            written = os.pread(file, min(rest, most_bytes or rest), self._offset)
            if len(written) < rest and b"\n" not in written:
                written = os.pread(file, rest, self._offset)
        finally:
            os.close(file)
        whole, newline, _ = written.rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        return [event for line in whole.splitlines() if (event := _event(line))]


def journal_events(path: Path, *texts: str) -> Iterator[dict[str, Any]]:
    """Yield the events of a journal in the order written. Lines that are incomplete or damaged are
    left out.

    Args:
        texts: only lines that contain one of these are parsed, because a journal of many devices
            and rounds has millions of lines; without texts, all are.
    """
    if not path.exists():
        return
    encoded = [text.encode() for text in texts or ("",)]
    with path.open("rb") as lines:
        for line in lines:
            if any(text in line for text in encoded) and (event := _event(line.rstrip(b"\n"))):
                yield event


def _event(line: bytes) -> dict[str, Any] | None:
    """The event of a line; None if the line is incomplete or damaged."""
    event = object_in(line)
    return event if event is not None and "event" in event else None
