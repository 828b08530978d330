"""CSV with named columns: a time, and rates with their units, for example `seconds, down Mbit/s`.

A row has the rate from its instant until the next row. Where rows are missing (a pause of more than
ten usual ones), the recording is silent, so the pause is left out. Rows with the same instant, as
loggers of whole seconds write them, count with their mean.

Round trip and loss are read too, and the signal is mentioned. The drives of G-NetTrack are such
files (Raca, Leahy, Sreenan, Quinlan, Beyond throughput, the next generation: a 5G dataset with
channel and context metrics, MMSys 2020); their rates are kbit/s.
"""

import csv
import math
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from muster.common.rates.over_time import RateOverTime
from muster.common.rates.recording import Recording
from muster.common.rates.stamps import BPS_OF, LONGEST_S, MOST_BPS, epoch_unit
from muster.common.recorded_lines import (
    Line,
    line_number,
    line_of_row,
    lines_of,
    mistake,
    number_of,
    odd_lines,
    table_of,
)
from muster.common.seeds import FloatArray, IntArray

_PAUSE_ROWS = 10
_MISSING = ("", "-", "n/a")

_RATE_UNITS = {
    "gbit/s": 1e9, "gbps": 1e9, "mbit/s": 1e6, "mbps": 1e6, "mbits/sec": 1e6, "kbit/s": 1e3,
    "kbps": 1e3, "kbits/sec": 1e3, "bit/s": 1.0, "bps": 1.0, "bits/sec": 1.0,
    "mb/s": BPS_OF["MB/s"], "kb/s": BPS_OF["kB/s"], "b/s": BPS_OF["B/s"],
}  # fmt: skip
_TIME_UNITS = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0}
_LOSS_UNITS = {"%": 0.01, "percent": 0.01, "ratio": 1.0, "share": 1.0}

_NAMES: dict[str, tuple[str, ...]] = {
    "time": ("time", "timestamp", "t", "ts", "second", "seconds", "elapsed", "instant"),
    "down": ("down", "dl", "download", "downlink", "dl bitrate", "down rate", "download rate",
             "downlink rate", "throughput", "bandwidth", "rate", "bitrate"),
    "up": ("up", "ul", "upload", "uplink", "ul bitrate", "up rate", "upload rate", "uplink rate"),
    "rtt": ("rtt", "round trip", "ping", "pingavg"),
    "loss": ("loss", "packet loss", "pingloss"),
    "signal": ("rsrp", "rssi", "sinr", "snr", "signal"),
}  # fmt: skip
_UNITS = {
    "time": _TIME_UNITS, "down": _RATE_UNITS, "up": _RATE_UNITS, "rtt": _TIME_UNITS,
    "loss": _LOSS_UNITS, "signal": {"dbm": 1.0, "db": 1.0},
}  # fmt: skip
_ASSUMED = {"time": "s", "rtt": "ms", "loss": "%", "signal": "dbm"}
_KNOWN = {"dl_bitrate": "kbps", "ul_bitrate": "kbps"}
"""Columns of G-NetTrack, whose names lack the unit."""


RATES = ("down", "up")
"""The columns that are rates."""


class _Column(NamedTuple):
    """A column that is understood.

    Attributes:
        place: from 0.
        factor: what its numbers are multiplied by, to get seconds, bit/s or a share.
    """

    place: int
    name: str
    unit: str
    factor: float


class _Form(NamedTuple):
    """How the rows are written.

    Attributes:
        separator: what is between cells.
        cells: how many a row has.
    """

    separator: str
    cells: int


def matches(lines: Sequence[str]) -> bool:
    first = lines[0].lstrip('"')
    return first[:1].isalpha() and first.lower() not in ("nan", "inf")


def read(path: Path, content: bytes) -> Recording:
    lines = lines_of(content)
    number, header = next(lines, Line(0, ""))
    separator = max(",;\t", key=header.count)
    names = next(csv.reader([header], delimiter=separator))
    form, columns = _Form(separator, len(names)), _columns_of(path, number, names)
    if "time" not in columns or not columns.keys() & set(RATES):
        raise mistake(
            path, number, "a column of time, as 'seconds', and one of 'down Mbit/s' or 'up Mbit/s'",
            header,
        )  # fmt: skip
    for line in odd_lines(content, number):
        _values(path, line, form, columns)  # refused before 100 MB are read
    values = _fast_values(path, content, number, form, columns)
    if values is None:
        values = _slow_values(path, lines, form, columns)
    return _recording(path, content, columns, values)


def _fast_values(
    path: Path, content: bytes, header: int, form: _Form, columns: Mapping[str, _Column]
) -> dict[str, FloatArray] | None:
    """The values of the columns in SI units, if all are numbers.

    Raises:
        ValueError: a number is not as it should be.
    """
    places = [column.place for column in columns.values()]
    found = table_of(content, form.separator, columns=places, skipped=header)
    if found is None or not len(found):
        return None
    in_header = content.count(form.separator.encode(), 0, _end_of_line(content, header))
    in_rows = content.count(form.separator.encode()) - in_header
    if in_rows != len(found) * (form.cells - 1):
        return None  # a row has another number of cells, or a comment has some
    found *= [column.factor for column in columns.values()]
    values = dict(zip(columns, found.T, strict=True))
    for role, of_role in values.items():
        if role == "time":
            wrong_times = (n for n, time in enumerate(of_role) if epoch_unit(float(time)))
            first = next(wrong_times) if epoch_unit(float(of_role.max())) else None
        elif role == "signal":
            continue
        else:
            most = MOST_BPS if role in RATES else math.inf
            wrong = np.flatnonzero((of_role < 0) | (of_role > most))
            first = int(wrong[0]) if len(wrong) else None
        if first is not None:
            _values(path, line_of_row(content, first + 1), form, columns)
            return None
    return values


def _end_of_line(content: bytes, number: int) -> int:
    """Where a line ends, by its number from 1."""
    end = 0
    for _ in range(number):
        end = content.find(b"\n", end) + 1 or len(content)
    return end


def _slow_values(
    path: Path, lines: Iterator[Line], form: _Form, columns: Mapping[str, _Column]
) -> dict[str, FloatArray]:
    """As `_fast_values`, row by row. Cells without a number are NaN, others are refused."""
    cells = {role: array("d") for role in columns}
    for line in lines:
        for role, value in zip(columns, _values(path, line, form, columns), strict=True):
            cells[role].append(value)
    return {role: np.array(cells[role]) for role in cells}


def _values(path: Path, line: Line, form: _Form, columns: Mapping[str, _Column]) -> list[float]:
    """The values of a row. Cells without a number are NaN, others are refused."""
    row = next(csv.reader([line.text], delimiter=form.separator))
    if len(row) != form.cells and (len(row) < form.cells or any(row[form.cells :])):
        expected = (
            f"{form.cells} cells, as in the header, with {form.separator!r} between them and "
            f"points in numbers"
        )
        raise mistake(path, line.number, expected, line.text)
    cells = [row[each.place].strip() for each in columns.values()]
    return [
        _value(path, line.number, role, column, cell)
        for (role, column), cell in zip(columns.items(), cells, strict=True)
    ]


def _columns_of(path: Path, number: int, header: Sequence[str]) -> dict[str, _Column]:
    """The columns that are understood, by what they have; of several, the first."""
    found: dict[str, _Column] = {}
    for place, name in enumerate(header):
        role, unit = _meaning(name)
        if role is None or role in found:
            continue
        if unit is None:
            expected = f"the unit of {name!r} in its name, as '{name} Mbit/s'"
            raise mistake(path, number, expected, name)
        found[role] = _Column(place, name.strip(), unit, _UNITS[role][unit])
    return found


def _meaning(name: str) -> tuple[str | None, str | None]:
    """What a column has by its name, and its unit; None: that is not known."""
    plain = name.strip().lower()
    text = re.sub(r"[()\[\]_\s]+", " ", plain).strip()
    for role, names in _NAMES.items():
        if text in names:
            return role, _KNOWN.get(plain, _ASSUMED.get(role))
        words, _, unit = text.rpartition(" ")
        if unit in _UNITS[role] and words in names:
            return role, unit
    return None, None


def _value(path: Path, number: int, role: str, column: _Column, cell: str) -> float:
    if role == "time":
        return _instant(path, number, column, cell)
    if cell.lower() in _MISSING:
        return math.nan
    value = column.factor * number_of(path, number, cell, f"a number in {column.name!r}")
    if role != "signal" and value < 0:
        raise mistake(path, number, f"at least 0 in {column.name!r}", cell)
    if role in RATES and value > MOST_BPS:
        raise mistake(path, number, f"at most {MOST_BPS:g} bit/s in {column.name!r}", cell)
    return value


def _instant(path: Path, number: int, column: _Column, cell: str) -> float:
    """The seconds of a cell: a number, or a date and time."""
    if cell[:4].isdigit() and re.match(r"[0-9]{4}[-./]", cell):
        for pattern in ("%Y.%m.%d_%H.%M.%S", None):
            try:
                at = datetime.strptime(cell, pattern) if pattern else datetime.fromisoformat(cell)
            except ValueError:
                continue
            return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    found = number_of(path, number, cell, f"seconds, or a date and time, in {column.name!r}")
    seconds = column.factor * found
    if (reason := epoch_unit(seconds)) is not None:
        raise ValueError(
            f"{path}, line {number}: expected {column.unit} in {column.name!r}, found {cell!r}, "
            f"{reason}, or name the unit, as 'time ms'"
        )
    return seconds


def _recording(
    path: Path, content: bytes, columns: dict[str, _Column], values: dict[str, FloatArray]
) -> Recording:
    if not len(values["time"]):
        raise ValueError(f"{path} has a header only; expected rows")
    notes = []
    steps = np.diff(values["time"])
    _require_ascending(path, content, values["time"], steps)
    rows = None
    if doubled := len(steps) - np.count_nonzero(steps):
        notes.append(f"{doubled:,} rows have the instant of the row before; their mean counts")
        rows = np.flatnonzero(np.append(True, steps != 0))
        steps = steps[steps != 0]
    usual = float(np.median(steps))
    pauses = steps > _PAUSE_ROWS * usual
    if pauses.any():
        notes.append(
            f"{int(pauses.sum())} pauses without rows, up to {steps.max():.4g} s long, are left out"
        )
    steps[pauses] = usual
    lasts = np.append(steps, usual)
    del steps, pauses
    rates = {
        role: _rate(path, _means(values[role], rows), lasts, columns[role])
        for role in RATES
        if role in values
    }
    if "signal" in values:
        notes.append(f"the signal ({columns['signal'].name}) is not used: the rates follow it")
    units = {columns[role].unit for role in rates}
    used = ", ".join(f"{role} from {columns[role].name!r}" for role in columns if role != "signal")
    return Recording(
        rates.get("down"),
        rates.get("up"),
        " and ".join(sorted(units)),
        _mean(values.get("rtt")),
        _mean(values.get("loss")),
        [used, *notes],
    )


def _require_ascending(path: Path, content: bytes, seconds: FloatArray, steps: FloatArray) -> None:
    """Check that no row is before the row before it, with the number of its line.

    Args:
        steps: the seconds between the rows.
    """
    if (wrong := np.flatnonzero(steps < 0)).size:
        place = int(wrong[0])
        raise ValueError(
            f"{path}, line {line_number(content, place + 2)}: expected an instant after that of "
            f"the row before, found one {-steps[place]:.6g} s before it; sort the rows"
        )
    if not steps.any():
        raise ValueError(f"{path} has one instant only; expected at least two")
    if seconds[-1] - seconds[0] > LONGEST_S:
        raise ValueError(
            f"{path} lasts {seconds[-1] - seconds[0]:.3g} s; expected at most {LONGEST_S:g} s, in "
            f"the unit that the header names"
        )


def _means(values: FloatArray, rows: IntArray | None) -> FloatArray:
    """The mean of each run of rows with the same instant; NaN where none has a value.

    Args:
        rows: the first rows of the runs; None: no instant is there twice.
    """
    if rows is None:
        return values
    known = ~np.isnan(values)
    sums = np.add.reduceat(np.where(known, values, 0.0), rows)
    with np.errstate(invalid="ignore"):
        return np.asarray(sums / np.add.reduceat(known.astype(np.float64), rows))


def _rate(path: Path, bps: FloatArray, lasts: FloatArray, column: _Column) -> RateOverTime:
    known = ~np.isnan(bps)
    if not known.any():
        raise ValueError(f"{path} has no number in the column {column.name!r}; expected rates")
    if not known.all():
        lasts, bps = lasts[known], bps[known]
    try:
        return RateOverTime.of_pieces(lasts, bps)
    except ValueError as error:
        raise ValueError(f"{path}, column {column.name!r}: {error}") from None


def _mean(values: FloatArray | None) -> float | None:
    if values is None or (missing := np.isnan(values)).all():
        return None
    return float((values[~missing] if missing.any() else values).mean())
