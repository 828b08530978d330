"""Checksums of the ledger's pages, because SQLite has none outside its write-ahead log.

A damaged page that still has the form of a page would otherwise be read as if nothing had happened.
The file beside the ledger has the checksum of every page as of the last checkpoint. Between two
checkpoints SQLite writes to its log only, whose frames have checksums of their own. A page that is
in the log may differ: it is read from there, and a checkpoint may have been under way.

The log: https://www.sqlite.org/fileformat2.html#the_write_ahead_log
"""

import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from muster.common.errors import LedgerError
from muster.common.files import write_atomic

_MAGIC = b"muster page sums 1\n\0"
_HEAD = struct.Struct("<20sII")
"""Magic, page size, and number of pages. The sums follow, 8 bytes each, and the XXH3-64 of all."""

_SUM = np.dtype("<u8")
Sums = npt.NDArray[np.uint64]
"""The checksum of every page, shape (pages,)."""

_SQLITE = b"SQLite format 3\0"
_PAGE_SIZE_AT, _HEADER_BYTES = 16, 100
_LOG_HEADER = struct.Struct(">IIIIIIII")
_FRAMES_READ = 64


def sums_path(ledger: Path) -> Path:
    """The file with the checksums of a ledger's pages."""
    return ledger.with_name(f"{ledger.name}-sums")


class PageSums:
    """Records the checksums of a ledger to which only this process writes.

    A checkpoint costs in proportion to the pages that it copies, and not to the length of the
    ledger, except for the first one and for 8 bytes a page.
    """

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self._known: Sums | None = None

    def logged(self) -> set[int]:
        """Return the pages that the next checkpoint copies from the log, numbered from 1."""
        page_bytes = _page_bytes(self._ledger)
        return _logged_pages(_log_of(self._ledger), page_bytes) if page_bytes else set()

    def record(self, changed: Iterable[int]) -> None:
        """Write the checksums of all pages, right after a complete checkpoint and before another
        transaction.

        If they cannot be written, the old ones are removed, so that they refuse nothing.

        Args:
            changed: at least the pages that have changed since the last call.
        """
        page_bytes = _page_bytes(self._ledger)
        if not page_bytes:
            return
        if self._known is None:
            self._known = _sums_of(self._ledger, page_bytes)
        else:
            self._known = _renewed(self._known, self._ledger, page_bytes, changed)
        head = _HEAD.pack(_MAGIC, page_bytes, len(self._known)) + self._known.tobytes()
        path = sums_path(self._ledger)
        try:
            write_atomic(path, head, xxhash.xxh3_64_digest(head), durable=True)
        except OSError:
            path.unlink(missing_ok=True)


class PageDamage(NamedTuple):
    """Damage to a ledger, or to the file of its checksums.

    Attributes:
        file: the name of the damaged file.
        mend: what to do.
    """

    file: str
    expected: str
    found: str
    mend: str


def require_page_sums(ledger: Path) -> None:
    """Check the pages of a ledger that no process has open. Without recorded sums it passes.

    Raises:
        LedgerError: a page is not as the server left it, or the sums cannot be read.
    """
    if damage := page_damage(ledger):
        raise LedgerError(
            f"{ledger.with_name(damage.file)} is damaged: expected {damage.expected}, found "
            f"{damage.found}; {damage.mend}"
        )


def page_damage(ledger: Path) -> PageDamage | None:
    """Return the first damage to a ledger that no process has open; None if there is none, or if
    there are no recorded sums."""
    path = sums_path(ledger)
    if not path.exists() or not ledger.exists():
        return None
    if (known := _recorded(path)) is None:
        mend = "restore a copy of it, or remove it to go on without it"
        return PageDamage(path.name, "the checksums of the ledger's pages", "others", mend)
    recorded, page_bytes = known
    if _page_bytes(ledger) != page_bytes:
        return _damage(ledger, "a damaged header")
    found = _sums_of(ledger, page_bytes)
    logged = _logged_pages(_log_of(ledger), page_bytes)
    for page in range(1, max(len(recorded), len(found)) + 1):
        there = page <= len(recorded) and page <= len(found)
        if page not in logged and not (there and recorded[page - 1] == found[page - 1]):
            what = "missing" if page > len(found) else "not as the server left it"
            return _damage(
                ledger, f"that page {page} of {max(len(recorded), len(found))} is {what}"
            )
    return None


def _damage(ledger: Path, found: str) -> PageDamage:
    return PageDamage(
        ledger.name,
        "the pages that the server left",
        found,
        f"restore a copy of the file with its -wal and -sums, or start the run afresh. If you "
        f"trust another program that has written to it, remove {sums_path(ledger).name}",
    )


def _log_of(ledger: Path) -> Path:
    return ledger.with_name(f"{ledger.name}-wal")


def _recorded(path: Path) -> tuple[Sums, int] | None:
    """The recorded checksums, and the size of a page; None if the file is damaged."""
    data = path.read_bytes()
    if len(data) >= _HEAD.size:
        magic, page_bytes, count = _HEAD.unpack_from(data)
        end = _HEAD.size + count * _SUM.itemsize
        if magic == _MAGIC and xxhash.xxh3_64_digest(data[:end]) == data[end:]:
            return np.frombuffer(data, _SUM, count, _HEAD.size), page_bytes
    return None


def _page_bytes(ledger: Path) -> int:
    """The page size of a database; 0 if the file is none."""
    with ledger.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    if len(header) < _HEADER_BYTES or not header.startswith(_SQLITE):
        return 0
    (stated,) = struct.unpack_from(">H", header, _PAGE_SIZE_AT)
    page_bytes = 65536 if stated == 1 else stated
    return page_bytes if page_bytes >= 512 else 0  # no database has smaller pages


def _sums_of(ledger: Path, page_bytes: int) -> Sums:
    """The checksums of all pages of a database."""
    with ledger.open("rb") as file:
        pages = iter(lambda: file.read(page_bytes), b"")
        return np.fromiter(map(xxhash.xxh3_64_intdigest, pages), _SUM)


def _renewed(known: Sums, ledger: Path, page_bytes: int, changed: Iterable[int]) -> Sums:
    """The checksums of all pages, of which only the changed and the new ones are read."""
    with ledger.open("rb") as file:
        count = -(-file.seek(0, os.SEEK_END) // page_bytes)
        sums = np.zeros(count, _SUM)
        kept = min(count, len(known))
        sums[:kept] = known[:kept]
        for page in {*changed, *range(kept + 1, count + 1)}:
            if page <= count:
                content = os.pread(file.fileno(), page_bytes, (page - 1) * page_bytes)
                sums[page - 1] = xxhash.xxh3_64_intdigest(content)
    return sums


def _logged_pages(log: Path, page_bytes: int) -> set[int]:
    """The numbers of the pages in a write-ahead log, up to the first frame of an older one."""
    pages = set[int]()
    if not log.exists():
        return pages
    header_of_frame = ("page", ">u4"), ("pages", ">u4"), ("salts", ">u4", 2), ("sums", ">u4", 2)
    frame = np.dtype([*header_of_frame, ("content", np.void, page_bytes)])
    with log.open("rb") as file:
        header = file.read(_LOG_HEADER.size)
        if len(header) < _LOG_HEADER.size:
            return pages
        salts = np.array(_LOG_HEADER.unpack(header)[4:6])
        # Many frames at once, because reading each header by itself takes five times as long.
        while len(data := file.read(_FRAMES_READ * frame.itemsize)) >= frame.itemsize:
            frames = np.frombuffer(data, frame, len(data) // frame.itemsize)
            older = np.flatnonzero((frames["salts"] != salts).any(axis=1))
            pages.update(frames["page"][: older[0] if len(older) else None].tolist())
            if len(older):
                break
    return pages
