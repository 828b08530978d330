"""Which errors say that a disk takes no more."""

import errno
import sqlite3

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The disk, the quota of a user, and the size that a process may give a file."""

_SQLITE = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE})
"""SQLite knows only ENOSPC as a full disk. It reports the others as errors of writing."""


_SYSTEM = frozenset(
    {
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    }
)
_SHORT_READ = sqlite3.SQLITE_IOERR_SHORT_READ


def is_of_system(error: sqlite3.Error) -> bool:
    """Whether SQLite says that the operating system refused something, and not that a file is
    damaged: there is no room, no inode or no memory left, or the file may not be written."""
    code = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF in _SYSTEM and code != _SHORT_READ


def is_full(error: BaseException) -> bool:
    """Whether an error says that there is no room for what was to be written."""
    if isinstance(error, sqlite3.Error):
        # An error that Python's module did not get from SQLite has no code.
        return getattr(error, "sqlite_errorcode", None) in _SQLITE
    return isinstance(error, OSError) and error.errno in _NO_ROOM
