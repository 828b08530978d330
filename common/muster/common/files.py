"""Atomic writing of files, and refusals in place of errors of the operating system."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from muster.common.causes import room_hint
from muster.common.errors import ConfigError

_TEMPORARY = ".tmp"


def write_atomic(path: Path, *parts: bytes | memoryview, durable: bool = False) -> None:
    """Write `parts` to `path` so that a reader sees the old file or the new one, never a piece.

    Args:
        durable: whether the file also survives a power cut (fsync of file and folder). Otherwise it
            survives the death of any process, but not of the machine.
    """
    temporary = path.with_name(path.name + _TEMPORARY)
    try:
        with open(temporary, "wb", buffering=0, opener=_open_no_link) as file:
            for part in parts:
                rest = memoryview(part)
                while rest:
                    rest = rest[file.write(rest) :]
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        error.filename = error.filename or str(path)  # the error of a full disk names no file
        raise
    if durable:
        fsync_path(path.parent)


def _open_no_link(path: str, flags: int) -> int:
    """Open a file, unless it is a symbolic link: somebody else may be able to write its folder."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


@contextmanager
def refusal_of(what: str, advice: str) -> Iterator[None]:
    """Turn an error of the operating system into a refusal.

    Args:
        what: what cannot be done, for example "runs/a cannot be made".
        advice: what the user can do about it.

    Raises:
        ConfigError: an OSError came out of the body.
    """
    try:
        yield
    except BrokenPipeError:  # comes from standard output or error, not from a file
        raise
    except OSError as error:
        raise ConfigError(f"{what}: {os_reason(error)}; {advice}") from None


def os_reason(error: OSError) -> str:
    """The reason that the operating system gives for an error, with the file that it names."""
    path = error.filename2 or error.filename
    named = f" ({path})" if path else ""
    return f"{error.strerror or error}{named}{room_hint(error)}"


def require_writable(path: Path) -> None:
    """Check that a file can be written at `path`, before the work that makes its content.

    Raises:
        ConfigError: the file cannot be written.
    """
    with refusal_of(f"{path} cannot be written", "name another file"):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        temporary = path.with_name(path.name + _TEMPORARY)
        temporary.touch()
        temporary.unlink()


def fsync_path(path: Path) -> None:
    """Make a file, or the file names in a folder, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_unfinished(folder: Path) -> None:
    """Remove temporary files that a killed `write_atomic` left in `folder`."""
    for leftover in folder.glob(f"*{_TEMPORARY}"):
        leftover.unlink(missing_ok=True)
