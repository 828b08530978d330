"""Reads recordings of links in any format that muster knows, found by their content."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from muster.common.rates.formats import (
    bytes_log,
    chunk_log,
    mahimahi,
    measured_lines,
    rate_lines,
    seconds_log,
    stored,
    table,
)
from muster.common.rates.over_time import RateOverTime
from muster.common.rates.recording import Direction, Recording
from muster.common.recorded_lines import content_of, lines_of

_LOOKED_AT = 20
_KEPT = 1024


class Format(NamedTuple):
    """A format of recorded links.

    Attributes:
        matches: whether it is the format of a file that begins with these lines.
        read: reads the content of a file.
        what: what it is, for people.
    """

    matches: Callable[[Sequence[str]], bool]
    read: Callable[[Path, bytes], Recording]
    what: str


FORMATS: Mapping[str, Format] = {
    "mahimahi": Format(mahimahi.matches, mahimahi.read, "Mahimahi, milliseconds for 1500 bytes"),
    "rate-lines": Format(rate_lines.matches, rate_lines.read, "a rate in each line (NYU-METS)"),
    "measured-lines": Format(
        measured_lines.matches, measured_lines.read, "a rate and seven measurements (NYU-METS)"
    ),
    "chunk-log": Format(chunk_log.matches, chunk_log.read, "milliseconds, kbit/s (Oboe)"),
    "bytes-log": Format(bytes_log.matches, bytes_log.read, "bytes and milliseconds (HSDPA)"),
    "seconds-log": Format(seconds_log.matches, seconds_log.read, "seconds, Mbit/s (Pensieve)"),
    "table": Format(table.matches, table.read, "CSV with named columns"),
}
"""All formats, in the order in which they are tried."""


class NamedRecording(NamedTuple):
    """A recording, and the name of its format."""

    format: str
    recording: Recording


def read_recording(path: Path, format: str | None = None) -> NamedRecording:
    """Read a recording. All callers of a process share one until its file changes.

    Args:
        format: a key of FORMATS; None: found by the content.

    Raises:
        ValueError: it cannot be read. The message names file and line, and says what was expected.
    """
    try:
        changed_ns = path.stat().st_mtime_ns
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    return _read(path, changed_ns, format)


def read_rate(path: Path, direction: Direction, format: str | None = None) -> RateOverTime:
    """The rate of a recording in one direction.

    Raises:
        ValueError: the recording cannot be read, or has the other direction only.
    """
    found = read_recording(path, format).recording
    rate = found.down if direction == "down" else found.up
    if rate is None:
        other = "up" if direction == "down" else "down"
        raise ValueError(f"{path} has rates {other} only; expected a column with rates {direction}")
    return rate


@lru_cache(maxsize=_KEPT)
def _read(path: Path, changed_ns: int, format: str | None) -> NamedRecording:
    content = content_of(path)
    if content.startswith(stored.MAGIC):
        return NamedRecording("stored", stored.read(path))
    lines = [line.text for line in islice(lines_of(content), _LOOKED_AT)]
    if not lines:
        raise ValueError(f"{path} is empty; expected the recording of a link")
    name = format or _format_of(path, lines)
    try:
        return NamedRecording(name, FORMATS[name].read(path, content))
    except ValueError as error:
        if format is not None:
            raise
        raise ValueError(
            f"{error} (the content looks like {name}: {FORMATS[name].what}; trace_format in a "
            f"scenario, and --format of `muster trace import`, read it as something else)"
        ) from None


def _format_of(path: Path, lines: Sequence[str]) -> str:
    for name, of_name in FORMATS.items():
        if of_name.matches(lines):
            return name
    known = ", ".join(f"{name} ({each.what})" for name, each in FORMATS.items())
    raise ValueError(
        f"{path} begins with {lines[0][:40]!r}, which is no format that muster knows; expected one "
        f"of {known}"
    )
