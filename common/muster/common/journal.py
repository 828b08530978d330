"""The journal: one JSON line for every event, appended to `journal.jsonl`.

The journal is data. Reports read the journal and the ledger, never the running system. Where the
two differ, the ledger is right.
"""

import os
import weakref
from pathlib import Path

import orjson

from muster.common.clock import Clock
from muster.common.events import Event


class Journal:
    """Appends events to a journal. Several processes may write to one file: a line is one `write`.

    Args:
        role: the writing role, "server" or "supervisor".
        incarnation: how often this role has been started in this run folder, from 1.
    """

    def __init__(self, path: Path, role: str, incarnation: int, clock: Clock) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._close_file = weakref.finalize(self, os.close, self._file)
        self._torn = _is_torn(self._file)
        self._writer = {"role": role, "incarnation": incarnation}
        self._clock = clock
        self._lines: list[bytes] = []

    def add(self, event: Event, at: float | None = None) -> bytes:
        """Record `event` and return its line, a JSON object. `flush` writes it to the file.

        Numbers that are not finite become null.

        Args:
            at: when the event happened, in UNIX seconds; None: now.
        """
        at = self._clock.now() if at is None else at
        line = orjson.dumps({"event": event.name, "at": at, **self._writer, **event.fields()})
        self._lines.append(line)
        return line

    @property
    def waiting(self) -> bool:
        """Whether there is something to flush."""
        return bool(self._lines)

    def flush(self) -> None:
        """Write the lines to the file; they then survive the death of this process.

        Raises:
            OSError: for example because the disk is full; the lines are lost.
        """
        if not self._lines:
            return
        data = b"\n".join([*([b""] if self._torn else []), *self._lines, b""])
        self._lines.clear()
        self._torn = True
        try:
            while data := data[os.write(self._file, data) :]:
                pass
        except OSError as error:
            error.filename = str(self._path)
            raise
        self._torn = False

    def close(self) -> None:
        """Flush and close."""
        try:
            self.flush()
        finally:
            self._close_file()


def _is_torn(file: int) -> bool:
    """Whether the last line of a file is unfinished, because of a full disk or a power cut."""
    size = os.fstat(file).st_size
    return size > 0 and os.pread(file, 1, size - 1) != b"\n"
