"""Reads traces in Mahimahi's format."""

from functools import lru_cache
from pathlib import Path


def read_mahimahi(path: Path) -> tuple[int, ...]:
    """Read a trace in Mahimahi's format: milliseconds, ascending. The trace repeats after the last.

    Raises:
        ValueError: there is no such file, or it is not a trace. The message names the line.
    """
    try:
        status = path.stat()
        return _read(path, status.st_mtime_ns)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None


@lru_cache(maxsize=32)
def _read(path: Path, changed_ns: int) -> tuple[int, ...]:
    """Like `read_mahimahi`, but cached, so that a trace of a thousand devices is read once."""
    lines: list[int] = []
    for number, text in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            line = int(text)
        except ValueError:
            shown = text[:40].decode(errors="replace")
            raise ValueError(
                f"{path}, line {number}: expected a whole number of milliseconds, found {shown!r}"
            ) from None
        if line < (lines[-1] if lines else 0):
            raise ValueError(
                f"{path}, line {number}: {line} is less than the line before; "
                f"expected ascending milliseconds from 0"
            )
        lines.append(line)
    if not lines:
        raise ValueError(f"{path} is empty; expected a line for each 1500 bytes that may pass")
    if not lines[-1]:
        raise ValueError(
            f"{path} ends at millisecond 0; expected the duration of the trace in its last line"
        )
    return tuple(lines)
