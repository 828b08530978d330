"""The journal: one JSON line for every event, appended to `journal.jsonl`.

Every line of the file has a checksum of itself (`sealed_lines`). The journal is data. Reports read
the journal and the ledger, never the running system. Where the two differ, the ledger is right.
"""

import os
import weakref
from pathlib import Path

import orjson

from muster.common.clock import Clock
from muster.common.events import Event
from muster.common.full_disk import is_full
from muster.common.sealed_lines import sealed


class Journal:
    """Appends events to a journal. Several processes may write to one file: a line is one `write`.

    Attributes:
        waiting: the lines that the next flush writes.

    Args:
        role: the writing role, "server" or "supervisor".
        incarnation: how often this role has been started in this run folder, from 1.
    """

    def __init__(self, path: Path, role: str, incarnation: int, clock: Clock) -> None:
        self._path = path
        # Not through a link, which a server may have left that outlived its supervisor.
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        self._file = os.open(path, flags, 0o644)
        self._close_file = weakref.finalize(self, os.close, self._file)
        self._torn = _is_torn(self._file)
        self._writer = {"role": role, "incarnation": incarnation}
        self._clock = clock
        self.waiting: list[bytes] = []
        self._refused = False  # whether the newest flush failed

    def add(self, event: Event, at: float | None = None) -> bytes:
        """Record `event` and return its line, a JSON object. `flush` writes it to the file, with
        its checksum.

        Numbers that are not finite become null.

        Args:
            at: when the event happened, in UNIX seconds; None: now.
        """
        at = self._clock.now() if at is None else at
        line = orjson.dumps({"event": event.name, "at": at, **self._writer, **vars(event)})
        self.waiting.append(sealed(line))
        return line

    def flush(self) -> None:
        """Write the lines to the file; they then survive the death of this process.

        Raises:
            OSError: for example because the disk is full. The lines that are not whole in the file
                wait for the next flush.
        """
        if not self.waiting:
            return
        data = rest = b"\n".join([*([b""] if self._torn else []), *self.waiting, b""])
        self._refused = True
        try:
            while rest := rest[os.write(self._file, rest) :]:
                pass
        except OSError as error:
            self._forget(data[: len(data) - len(rest)])
            error.filename = str(self._path)
            raise
        self.waiting.clear()
        self._torn = self._refused = False

    def flush_if_room(self) -> None:
        """Flush, but leave the lines to the next flush if the disk is full."""
        try:
            self.flush()
        except OSError as error:
            if not is_full(error):
                raise

    def _forget(self, written: bytes) -> None:
        """Forget the lines that are whole in the file. A part of a line stays there, and its line
        is written again after it, because other processes may write in between."""
        if written:
            del self.waiting[: written.count(b"\n") - self._torn]
            self._torn = not written.endswith(b"\n")

    def close(self) -> None:
        """Flush and close. Lines that the last flush could not write are tried once more, and
        lost if there is still no room."""
        refused = self._refused
        try:
            self.flush()
        except OSError:
            if not refused:
                raise
        finally:
            self._close_file()


def _is_torn(file: int) -> bool:
    """Whether the last line of a file is unfinished, because of a full disk or a power cut."""
    size = os.fstat(file).st_size
    return size > 0 and os.pread(file, 1, size - 1) != b"\n"
