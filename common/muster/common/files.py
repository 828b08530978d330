"""Files that are either whole or not there."""

import os
from pathlib import Path

_TEMPORARY = ".tmp"


def write_atomic(path: Path, *parts: bytes | memoryview, durable: bool = False) -> None:
    """Write `parts` to `path` so that a reader sees the old file or the new one, never a piece.

    Args:
        durable: also survive a power cut (fsync of file and folder). Without it the file survives
            the death of any process, but not of the machine.
    """
    temporary = path.with_name(path.name + _TEMPORARY)
    with open(temporary, "wb", buffering=0) as file:
        for part in parts:
            rest = memoryview(part)
            while rest:
                rest = rest[file.write(rest) :]
        if durable:
            os.fsync(file.fileno())
    os.replace(temporary, path)
    if durable:
        fsync_folder(path.parent)


def fsync_folder(folder: Path) -> None:
    """Make the names in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_unfinished(folder: Path) -> None:
    """Remove what a killed `write_atomic` left in `folder`."""
    for leftover in folder.glob(f"*{_TEMPORARY}"):
        leftover.unlink(missing_ok=True)
