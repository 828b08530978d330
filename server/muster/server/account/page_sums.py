"""Checksums of the ledger's pages, because SQLite has none outside its write-ahead log.

A damaged page that still has the form of a page would otherwise be read as if nothing had happened.
The file beside the ledger has the checksum of every page as of the last checkpoint. Between two
checkpoints SQLite writes to its log only, whose frames have checksums of their own. A page that is
in the log may differ: it is read from there, and a checkpoint may have been under way.

The log: https://www.sqlite.org/fileformat2.html#the_write_ahead_log
"""

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xxhash

from muster.common.errors import LedgerError
from muster.common.files import write_atomic

_MAGIC = b"muster page sums 1\n\0"
_HEAD = struct.Struct("<20sII")
"""Magic, page size, and number of pages. The sums follow, 8 bytes each, and the XXH3-64 of all."""

_SUM = np.dtype("<u8")
_SQLITE = b"SQLite format 3\0"
_PAGE_SIZE_AT, _HEADER_BYTES = 16, 100
_LOG_HEADER, _FRAME_HEADER = struct.Struct(">IIIIIIII"), struct.Struct(">IIIIII")


def sums_path(ledger: Path) -> Path:
    """The file with the checksums of a ledger's pages."""
    return ledger.with_name(f"{ledger.name}-sums")


def record_page_sums(ledger: Path) -> None:
    """Write the checksums of all pages, right after a complete checkpoint and before another
    transaction.

    If they cannot be written, the old ones are removed, so that they refuse nothing.
    """
    sums, page_bytes = _sums_of(ledger)
    if not page_bytes:
        return
    head = _HEAD.pack(_MAGIC, page_bytes, len(sums)) + sums.tobytes()
    try:
        write_atomic(sums_path(ledger), head, xxhash.xxh3_64_digest(head), durable=True)
    except OSError:
        sums_path(ledger).unlink(missing_ok=True)


def require_page_sums(ledger: Path) -> None:
    """Check the pages of a ledger that no process has open. Without recorded sums it passes.

    Raises:
        LedgerError: a page is not as the server left it, or the sums cannot be read.
    """
    path = sums_path(ledger)
    if not path.exists() or not ledger.exists():
        return
    recorded, page_bytes = _recorded(path)
    found, found_bytes = _sums_of(ledger)
    if found_bytes != page_bytes:
        raise _damaged(ledger, "its header is damaged")
    logged = set(_logged_pages(ledger.with_name(f"{ledger.name}-wal"), page_bytes))
    for page in range(1, max(len(recorded), len(found)) + 1):
        known = page <= len(recorded) and page <= len(found)
        if page not in logged and not (known and recorded[page - 1] == found[page - 1]):
            what = "missing" if page > len(found) else "not as the server left it"
            raise _damaged(ledger, f"page {page} of {max(len(recorded), len(found))} is {what}")


def _damaged(ledger: Path, what: str) -> LedgerError:
    return LedgerError(
        f"{ledger} is damaged: {what}. Restore a copy of the file with its -wal and -sums, or "
        f"start the run afresh. If you trust another program that has written to it, remove "
        f"{sums_path(ledger).name}"
    )


def _recorded(path: Path) -> tuple[npt.NDArray[np.uint64], int]:
    data = path.read_bytes()
    if len(data) >= _HEAD.size:
        magic, page_bytes, count = _HEAD.unpack_from(data)
        end = _HEAD.size + count * _SUM.itemsize
        whole = magic == _MAGIC and xxhash.xxh3_64_digest(data[:end]) == data[end:]
        if whole:
            return np.frombuffer(data, _SUM, count, _HEAD.size), page_bytes
    raise LedgerError(
        f"{path} is damaged: expected the checksums of the ledger's pages. Restore a copy of it, "
        f"or remove it to resume the run without them"
    )


def _sums_of(ledger: Path) -> tuple[npt.NDArray[np.uint64], int]:
    """The checksums of the pages of a file, and the page size; 0 if the file is no database."""
    with ledger.open("rb") as file:
        header = file.read(_HEADER_BYTES)
        if len(header) < _HEADER_BYTES or not header.startswith(_SQLITE):
            return np.empty(0, _SUM), 0
        (stated,) = struct.unpack_from(">H", header, _PAGE_SIZE_AT)
        page_bytes = 65536 if stated == 1 else stated
        if page_bytes < 512:  # no database has smaller pages
            return np.empty(0, _SUM), 0
        file.seek(0)
        pages = iter(lambda: file.read(page_bytes), b"")
        return np.fromiter(map(xxhash.xxh3_64_intdigest, pages), _SUM), page_bytes


def _logged_pages(log: Path, page_bytes: int) -> Iterator[int]:
    """Yield the numbers of the pages in a write-ahead log, up to the first frame of an older
    one."""
    if not log.exists():
        return
    with log.open("rb") as file:
        header = file.read(_LOG_HEADER.size)
        if len(header) < _LOG_HEADER.size:
            return
        salts = _LOG_HEADER.unpack(header)[4:6]
        while len(frame := file.read(_FRAME_HEADER.size)) == _FRAME_HEADER.size:
            page, _, *stated, _, _ = _FRAME_HEADER.unpack(frame)
            if tuple(stated) != salts:
                return
            yield page
            file.seek(page_bytes, 1)
