"""The disk of a simulated run: which data survives a crash, and when the disk is full.

SQLite and files are real. A killed process loses nothing that it handed to the kernel. Its files
are still replaced by copies, so that a file which the dead process holds open is not the file that
its successor opens. A power cut keeps synced data; the seed decides what remains of the rest.

Commits do not wait for the real disk, which would take a tenth of the time of a small run.
"""

import errno
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from muster.client.device.memory import STATE_FILE
from muster.server.updates.memory import MEMORY
from muster.simulation.faults import DiskFull

_PAGE = 512


def reading(ledger: Path) -> sqlite3.Connection:
    """Open a ledger only to read it. Any other connection would copy the log into the file when it
    closes, which no process of a run has done.

    Raises:
        sqlite3.OperationalError: there is no such file.
    """
    return sqlite3.connect(f"{ledger.absolute().as_uri()}?mode=ro", uri=True)


class Disk:
    """The files of one run folder: which of them are synced, and whether there is room.

    Attributes:
        full: the kinds of files for which there is no room: "ledger", "journal", "model", "upload",
            "memory".
        writes: number of writes by kind.

    Args:
        strikes: the faults after which the disk is full for a kind of file.
        journal_written: called with what was written to the journal.
    """

    def __init__(
        self,
        folder: Path,
        random: Random,
        strikes: Iterable[DiskFull],
        journal_written: Callable[[bytes], None] = lambda data: None,
    ) -> None:
        self.folder = folder
        self.full = set[str]()
        self.writes = Counter[str]()
        self._random = random
        self._strikes: dict[str, DiskFull] = {fault.what: fault for fault in strikes}
        self._journal_written = journal_written
        self._synced: set[Path] = set()
        self._states: dict[Path, bytes] = {}  # of devices, as they were synced
        self._overwritten: list[tuple[int, bytes]] = []  # of the memory since it was synced

    def connect(self, *args: Any, **options: Any) -> sqlite3.Connection:
        """As `sqlite3.connect`, but commits fail if there is no room, and wait for no disk."""
        disk = self

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
                if sql.startswith("PRAGMA synchronous"):
                    sql = "PRAGMA synchronous = OFF"
                if sql == "COMMIT" and not disk.has_room("ledger"):
                    super().execute("ROLLBACK")
                    error = sqlite3.OperationalError("database or disk is full")
                    error.sqlite_errorcode = sqlite3.SQLITE_FULL
                    raise error
                return super().execute(sql, *values)

        return sqlite3.connect(*args, factory=Connection, **options)

    def has_room(self, what: str) -> bool:
        """Count a write of kind `what`, and return whether there is room for it."""
        fault = self._strikes.get(what)
        if fault is not None:
            failing = self.writes[what] - fault.write
            if failing == 0:
                self.full.add(what)
            elif failing == fault.fails:
                self.full.discard(what)
        self.writes[what] += 1
        return what not in self.full

    @contextmanager
    def mounted(self) -> Iterator[None]:
        """Make this process's writes follow the rules of this disk while the context is active."""
        system = {name: getattr(os, name) for name in ("fsync", "write", "pwrite")}

        def refuse(what: str) -> None:
            if not self.has_room(what):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def fsync(file: int) -> None:
            path = Path(os.readlink(f"/proc/self/fd/{file}"))
            if path.parent.name == "models":
                refuse("model")
            system["fsync"](file)
            if path.name == MEMORY:
                self._overwritten.clear()
            if path.name == STATE_FILE:
                self._states[path] = path.read_bytes()
            # A new file is written under another name and renamed. Then its folder is synced.
            self._synced.update(path.iterdir() if path.is_dir() else [path])

        def write(file: int, data: Any) -> int:
            journal = os.readlink(f"/proc/self/fd/{file}").endswith("journal.jsonl")
            if journal:
                refuse("journal")
            written = int(system["write"](file, data))
            if journal:
                self._journal_written(bytes(data)[:written])
            return written

        def pwrite(file: int, data: Any, offset: int) -> int:
            memory = os.readlink(f"/proc/self/fd/{file}").endswith(MEMORY)
            refuse("memory" if memory else "upload")
            if memory:
                old = os.pread(file, len(data), offset).ljust(len(data), b"\0")
                self._overwritten.append((offset, old))
            return int(system["pwrite"](file, data, offset))

        for name, call in (("fsync", fsync), ("write", write), ("pwrite", pwrite)):
            setattr(os, name, call)
        try:
            yield
        finally:
            for name, call in system.items():
                setattr(os, name, call)

    def server_killed(self) -> None:
        """Replace the files that the server had open."""
        one = (self.folder / name for name in ("journal.jsonl", MEMORY))
        for path in (*self.folder.glob("ledger.sqlite*"), *one):
            _replace(path)

    def device_killed(self, clients: list[str]) -> None:
        """Replace the files that a pack had open."""
        for client in clients:
            _replace(self.folder / "devices" / client / STATE_FILE)

    def power_cut(self) -> None:
        """Lose all or a part of the data that was not synced; SQLite has synced every commit."""
        self.server_killed()
        journal = self.folder / "journal.jsonl"
        if journal.exists() and self._random.random() < 0.7:
            data = journal.read_bytes()
            journal.write_bytes(data[: self._random.randrange(len(data) + 1)])
        for path in self.folder.glob(f"devices/*/{STATE_FILE}"):
            _replace(path)
            if (synced := self._states.get(path)) is None:
                self._lose(path)
            else:
                self._go_back(path, synced)
        for path in self.folder.glob("models/*"):
            if path not in self._synced:
                self._lose(path)
        self._lose_memory()

    def _lose_memory(self) -> None:
        """Give some pages of the memory that were written since it was synced their old content."""
        if not self._overwritten:
            return
        with (self.folder / MEMORY).open("r+b") as file:
            for offset, old in reversed(self._overwritten):
                for start in range(0, len(old), _PAGE):
                    if self._random.random() < 0.5:
                        file.seek(offset + start)
                        file.write(old[start : start + _PAGE])
        self._overwritten.clear()

    def _go_back(self, path: Path, synced: bytes) -> None:
        """Give a file, or pages of it that were written since it was synced, their old content."""
        data = bytearray(path.read_bytes())
        if len(data) != len(synced):  # another file has its name
            path.write_bytes(synced if self._random.random() < 0.5 else data)
            return
        for start in range(0, len(data), _PAGE):
            if self._random.random() < 0.3:
                data[start : start + _PAGE] = synced[start : start + _PAGE]
        path.write_bytes(data)

    def _lose(self, path: Path) -> None:
        fate = self._random.random()
        if fate < 0.3:
            path.unlink()
        elif fate < 0.6:
            data = path.read_bytes()
            torn = bytearray(data)
            for start in range(0, len(data), _PAGE):
                if self._random.random() < 0.3:
                    end = min(len(data), start + _PAGE)
                    torn[start:end] = bytes(end - start)
            path.write_bytes(bytes(torn))
        elif fate < 0.7:
            path.write_bytes(b"")
        elif fate < 0.75:  # its new length was not synced
            os.truncate(path, self._random.randrange(path.stat().st_size + 1))


def _replace(path: Path) -> None:
    if path.exists():
        dead = path.with_name(path.name + ".dead")
        os.replace(path, dead)
        if not path.name.endswith("-shm"):  # SQLite makes it again from the log
            shutil.copyfile(dead, path)
        dead.unlink()
