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
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
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
        """Hand the lines to the kernel: they survive the death of this process."""
        if self._lines:
            os.write(self._file, b"\n".join([*self._lines, b""]))
            self._lines.clear()

    def close(self) -> None:
        """Flush and close."""
        self.flush()
        os.close(self._file)
