"""The journal: one JSON line for everything that happened, appended to `journal.jsonl`.

The journal is data. Reports read it together with the ledger, never the running system; where the
two differ the ledger is the truth.
"""

import os
from pathlib import Path
from typing import Any

import orjson

from muster.common.clock import Clock


class Journal:
    """An append-only writer. Several processes may write to one file: a line is one `write`.

    Args:
        role: who writes: "server" or "supervisor".
        incarnation: how often this role has been started in this run folder, from 1.
    """

    def __init__(self, path: Path, role: str, incarnation: int, clock: Clock) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        # A power cut may have torn the last line; it must not swallow the next one.
        size = os.fstat(self._file).st_size
        torn = size > 0 and os.pread(self._file, 1, size - 1) != b"\n"
        self._unwritten = b"\n" if torn else b""
        self._writer = {"role": role, "incarnation": incarnation}
        self._clock = clock
        self._lines: list[bytes] = []

    def add(self, event: str, **fields: Any) -> bytes:
        """Record `event` and return its line, a JSON object; `flush` writes it.

        A number that is not finite becomes null. `at`, UNIX seconds, is now unless it is given.
        """
        line = orjson.dumps({"event": event, "at": self._clock.now(), **self._writer, **fields})
        self._lines.append(line)
        return line

    @property
    def waiting(self) -> bool:
        """Whether there is something to flush."""
        return bool(self._lines)

    def flush(self) -> None:
        """Hand the lines to the kernel: they survive the death of this process.

        Raises:
            OSError: not all could be written, as on a full disk; the next flush writes the rest.
        """
        if self._lines:
            self._unwritten += b"\n".join([*self._lines, b""])
            self._lines.clear()
        while self._unwritten:
            written = os.write(self._file, self._unwritten)
            self._unwritten = self._unwritten[written:]

    def close(self) -> None:
        """Flush and close.

        Raises:
            OSError: as `flush`; the file is closed all the same.
        """
        try:
            self.flush()
        finally:
            os.close(self._file)
