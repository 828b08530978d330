"""Reads the lines of recordings: text or gzip, with comments and blank lines.

Recordings of links and of availability come in many formats. They share this reader, and the form
of the messages about their mistakes.
"""

import gzip
import io
import math
import warnings
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from muster.common.seeds import FloatArray

MOST_BYTES = 2 << 30
"""The largest recording, after decompression. A larger one would not fit into memory."""

_GZIP = b"\x1f\x8b"
_COMMENT = "#"
_SHOWN = 40


_IS_ODD = np.ones(256, dtype=bool)
_IS_ODD[list(b'0123456789.eE+,;"\t \r\n')] = False


_EPOCH = (
    (1e14, "microseconds", "subtract the first instant, and divide by 1,000,000"),
    (1e11, "milliseconds", "subtract the first instant, and divide by 1,000"),
    (1e9, "seconds", "subtract the first instant"),
)
"""Instants above these are since 1970: as seconds of a scenario, they would be decades."""


def epoch_of(instant: float, least: float = 0.0) -> str | None:
    """Why an instant looks as if it was since 1970, and the conversion; None: it does not.

    Args:
        least: smaller instants may be what they are.
    """
    for above, unit, conversion in _EPOCH:
        if max(above, least) <= instant < math.inf:
            return f"which looks like {unit} since 1970; {conversion}"
    return None


class Line(NamedTuple):
    """A line of a recording that is neither blank nor a comment.

    Attributes:
        number: its number in the file, from 1.
    """

    number: int
    text: str


def mistake(path: Path, number: int, expected: str, found: str) -> ValueError:
    """The refusal of a line of a recording."""
    return ValueError(f"{path}, line {number}: expected {expected}, found {found[:_SHOWN]!r}")


def content_of(path: Path) -> bytes:
    """The content of a recording, decompressed if it is gzip.

    Raises:
        ValueError: it cannot be read; the message names the file.
    """
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == _GZIP
        with gzip.open(path) if packed else open(path, "rb") as file:
            content: bytes = file.read(MOST_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(
            f"{path} is damaged gzip ({error}); expected the whole file, copy it again"
        ) from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > MOST_BYTES:
        raise ValueError(f"{path} has more than {MOST_BYTES:,} bytes; expected a part of it")
    return content.removeprefix(b"\xef\xbb\xbf")


def lines_of(content: bytes) -> Iterator[Line]:
    """Yield the lines of a recording without blank ones and comments, which begin with #."""
    for number, line in enumerate(io.BytesIO(content), start=1):
        text = line.decode(errors="replace").strip()
        if text and not text.startswith(_COMMENT):
            yield Line(number, text)


def odd_lines(
    content: bytes, skipped: int = 0, most: int = 1000, piece_bytes: int = 1 << 22
) -> Iterator[Line]:
    """Yield the first lines that have something else than positive numbers, so that a mistake in a
    large file is found before all of it is read number by number.

    They may be as they should be: numbers below 0, dates and words have such characters, too.

    Args:
        skipped: number of lines at the beginning that are not looked at.
        most: most lines that are found. A file with more has such characters in every line.
        piece_bytes: bytes that are looked at together.
    """
    start = 0
    for _ in range(skipped):
        start = content.find(b"\n", start) + 1 or len(content)
    number, counted, found = skipped + 1, start, 0
    while start < len(content) and found < most:
        piece = np.frombuffer(content, np.uint8, min(piece_bytes, len(content) - start), start)
        odd = np.flatnonzero(_IS_ODD[piece])
        end = start + len(piece)
        while len(odd) and found < most:
            at = start + int(odd[0])
            begin = content.rfind(b"\n", 0, at) + 1
            end_of_line = content.find(b"\n", at)
            end_of_line = len(content) if end_of_line < 0 else end_of_line
            number += content.count(b"\n", counted, begin)
            counted = begin
            text = content[begin:end_of_line].decode(errors="replace").strip()
            if text and not text.startswith(_COMMENT):
                found += 1
                yield Line(number, text)
            odd = odd[np.searchsorted(odd, end_of_line - start) :]
            end = max(end, end_of_line)
        start = end


def number_of(path: Path, number: int, text: str, expected: str) -> float:
    """The finite number that a cell of line `number` is.

    Raises:
        ValueError: it is none.
    """
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found) or "_" in text:
        raise mistake(path, number, expected, text)
    return found


def table_of(
    content: bytes,
    separator: str | None = None,
    dtype: DTypeLike = np.float64,
    columns: Sequence[int] | None = None,
    skipped: int = 0,
) -> NDArray[Any] | None:
    """The numbers of a recording, shape (lines, columns); None: it has something else, or not the
    same columns in each line.

    Args:
        separator: what separates cells; None: any white space.
        columns: the columns that are read; None: all, and there must be the same in each line.
        skipped: number of lines at the beginning that are not read.
    """
    with warnings.catch_warnings(action="ignore"):  # it warns of an empty file
        try:
            found = np.loadtxt(
                io.BytesIO(content),
                dtype,
                comments=_COMMENT,
                delimiter=separator,
                skiprows=skipped,
                usecols=columns,
                ndmin=2,
            )
        except ValueError:
            return None
    return found if np.isfinite(found).all() else None


def columns_of(
    path: Path, content: bytes, separator: str | None, expected: Sequence[str]
) -> FloatArray:
    """The columns of a recording that has numbers only, shape (columns, lines).

    Args:
        separator: what separates cells; None: any white space.
        expected: what each column has, for messages.

    Raises:
        ValueError: it has something else; the message names the line.
    """
    for line in odd_lines(content):
        _numbers_of(path, line, separator, expected)
    found = table_of(content, separator)
    if found is not None and found.shape[1] == len(expected) and len(found):
        return found.T  # a copy of a large recording would take too much memory
    rows = [_numbers_of(path, line, separator, expected) for line in lines_of(content)]
    if not rows:
        raise ValueError(f"{path} is empty; expected lines with {' and '.join(expected)}")
    return np.array(rows).T


def _numbers_of(
    path: Path, line: Line, separator: str | None, expected: Sequence[str]
) -> list[float]:
    cells = line.text.split(separator)
    if len(cells) != len(expected):
        raise mistake(path, line.number, " and ".join(expected), line.text)
    return [
        number_of(path, line.number, cell.strip(), of_cell)
        for cell, of_cell in zip(cells, expected, strict=True)
    ]


def line_number(content: bytes, row: int) -> int:
    """The number of the line in the file of a row, counted from 0 without blanks and comments."""
    return line_of_row(content, row).number


def line_of_row(content: bytes, row: int) -> Line:
    """The line of a row, counted from 0 without blanks and comments."""
    return next(line for place, line in enumerate(lines_of(content)) if place == row)
