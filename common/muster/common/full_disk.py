"""Which errors say that a disk takes no more."""

import errno
import sqlite3

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The disk, the quota of a user, and the size that a process may give a file."""

_SQLITE = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE})
"""SQLite knows only ENOSPC as a full disk. It reports the others as errors of writing."""


def is_full(error: BaseException) -> bool:
    """Whether an error says that there is no room for what was to be written."""
    if isinstance(error, sqlite3.Error):
        # An error that Python's module did not get from SQLite has no code.
        return getattr(error, "sqlite_errorcode", None) in _SQLITE
    return isinstance(error, OSError) and error.errno in _NO_ROOM
