"""Reads and writes files of availability traces. They may be gzip, and CSV may have comments.

A trace is the state at time 0 and the instants at which it changes, in the minimal text form
proposed for Plato (TL-System/plato, issue 101). In CSV, toggles are separated by spaces, and a
trace that repeats has a period:

    client,start,period_s,toggles
    phone-0,1,86400,25200 61200 64800
    phone-1,0,,3600

or each row is a time for which a device is available:

    device,start,end
    phone-0,0,25200

In JSON:

    {"phone-0": {"start": true, "toggles": [25200, 61200, 64800], "period_s": 86400},
     "phone-1": {"start": false, "toggles": [3600], "period_s": null}}
"""

import csv
import io
import json
import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from muster.common.config import Section, validate
from muster.common.errors import ConfigError
from muster.common.files import write_atomic
from muster.common.recorded_lines import content_of, epoch_of
from muster.common.seeds import BoolArray, FloatArray, stream

HEADER = ["client", "start", "period_s", "toggles"]
_INTERVAL = ["start", "end"]

Assign = Literal["position", "random"]
"""How devices get one of several recordings."""


@dataclass(frozen=True, slots=True)
class AvailabilityTrace:
    """The availability of one device over time.

    Attributes:
        start: whether the device is available at time 0.
        toggles: instants at which that changes, in seconds > 0, strictly ascending.
        period_s: seconds after which the trace begins again, later than all toggles; None: it never
            begins again, and the last state lasts.

    Raises:
        ValueError: the toggles or the period are not as described.
    """

    start: bool
    toggles: tuple[float, ...]
    period_s: float | None = None

    def __post_init__(self) -> None:
        if self.period_s is not None and not 0 < self.period_s < math.inf:
            raise ValueError(f"expected a period of > 0 seconds, found {self.period_s!r}")
        end = math.inf if self.period_s is None else self.period_s
        for before, after in pairwise((0.0, *self.toggles, end)):
            if not before < after:
                raise ValueError(
                    f"expected toggles of > 0 seconds, strictly ascending and before the end of "
                    f"the period; found {before!r} and then {after!r}"
                )

    def on(self, time_s: float) -> bool:
        """Whether the device is available at `time_s` >= 0; at a toggle the new state holds."""
        local = time_s if self.period_s is None else time_s % self.period_s
        return self.start ^ (bisect_right(self.toggles, local) % 2 == 1)


class Toggles:
    """Traces of many devices, looked up at once."""

    def __init__(self, traces: Sequence[AvailabilityTrace]) -> None:
        self._start = np.array([trace.start for trace in traces])
        self._period_s = np.array([trace.period_s or np.inf for trace in traces])
        # All toggles in one row; those of device i lie in [first_i, first_(i+1)).
        self._first = np.cumsum([0, *(len(trace.toggles) for trace in traces)])
        toggles = (toggle for trace in traces for toggle in trace.toggles)
        self._toggles = np.fromiter(toggles, np.float64, self._first[-1])

    def on(self, times_s: FloatArray) -> BoolArray:
        """Whether each trace is on at `times_s`, an instant for every device.

        Bisects all traces at once for the first toggle that is still to come.
        """
        times_s = np.mod(times_s, self._period_s)
        low, high = self._first[:-1].copy(), self._first[1:].copy()
        while len(rows := np.flatnonzero(low < high)):
            middle = (low[rows] + high[rows]) // 2
            passed = self._toggles[middle] <= times_s[rows]
            low[rows[passed]] = middle[passed] + 1
            high[rows[~passed]] = middle[~passed]
        toggled: BoolArray = (low - self._first[:-1]) % 2 == 1
        return self._start ^ toggled


T = TypeVar("T")


def of_devices(
    recorded: Mapping[str, T],
    seed: int,
    clients: Sequence[str],
    positions: Sequence[int],
    assign: Assign,
) -> list[T]:
    """What was recorded for each device: under its own name, or else at its position, modulo the
    number of recordings.

    Args:
        assign: random: draw the place instead, from a stream of each device.
    """
    values = list(recorded.values())
    if assign == "random":
        drawn = (float(stream(seed, "recording", client).random()) for client in clients)
        positions = [int(len(values) * number) for number in drawn]
    return [
        recorded[client] if client in recorded else values[place % len(values)]
        for client, place in zip(clients, positions, strict=True)
    ]


class _Entry(Section):
    start: bool
    toggles: list[float]
    period_s: float | None


def read_traces(path: Path) -> dict[str, AvailabilityTrace]:
    """Read a file of traces, .csv or .json; return the traces by client, in the file's order.

    Raises:
        ConfigError: the file cannot be read or has a mistake; the message names the line or client.
    """
    name = path.with_suffix("") if path.suffix == ".gz" else path
    read = {".csv": _read_csv, ".json": _read_json}.get(name.suffix.lower())
    if read is None:
        raise ConfigError(f"{path} is neither .csv nor .json; expected a file of traces")
    try:
        traces = read(path, content_of(path).decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not text in UTF-8: {error}") from None
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if not traces:
        raise ConfigError(f"{path} has no traces; expected at least one")
    return traces


def write_traces(path: Path, traces: Mapping[str, AvailabilityTrace]) -> None:
    """Write traces so that `read_traces` reads the same; `path` ends in .csv or .json."""
    if path.suffix.lower() == ".json":
        entries = {
            client: {"start": trace.start, "toggles": trace.toggles, "period_s": trace.period_s}
            for client, trace in traces.items()
        }
        text = json.dumps(entries, indent=1)
    elif path.suffix.lower() == ".csv":
        file = io.StringIO()
        commented = any(client.startswith("#") for client in traces)
        rows = csv.writer(
            file, lineterminator="\n", quoting=csv.QUOTE_ALL if commented else csv.QUOTE_MINIMAL
        )
        rows.writerow(HEADER)
        rows.writerows(_cells(client, trace) for client, trace in traces.items())
        text = file.getvalue()
    else:
        raise ConfigError(f"{path} is neither .csv nor .json; expected one of these endings")
    write_atomic(path, text.encode())


# --- CSV -----------------------------------------------------------------------------------------


def _cells(client: str, trace: AvailabilityTrace) -> list[str]:
    period = "" if trace.period_s is None else repr(trace.period_s)
    return [client, str(int(trace.start)), period, " ".join(map(repr, trace.toggles))]


def _read_csv(path: Path, text: str) -> dict[str, AvailabilityTrace]:
    lines = ("\n" if line.startswith("#") else line for line in io.StringIO(text, newline=""))
    rows = csv.reader(lines, strict=True)
    traces = dict[str, AvailabilityTrace]()
    filled = (row for row in rows if row)
    try:
        header = next(filled, [])
        if [cell.strip().lower() for cell in header[1:]] == _INTERVAL:
            return _from_intervals(filled)
        for client, trace in _parsed(header, filled):
            if client in traces:
                raise ValueError(f"{client!r} has a trace already, expected one per client")
            traces[client] = trace
    except (ValueError, csv.Error) as error:
        raise ConfigError(f"{path}, line {rows.line_num}: {error}") from None
    return traces


def _from_intervals(rows: Iterator[list[str]]) -> dict[str, AvailabilityTrace]:
    """The traces of rows that are times for which a device is available."""
    edges: dict[str, list[float]] = {}
    for row in rows:
        if len(row) != 1 + len(_INTERVAL):
            raise ValueError(f"expected a device, a start and an end, found {','.join(row)!r}")
        device, start_s, end_s = row[0].strip(), *map(_instant, row[1:])
        known = edges.setdefault(device, [])
        if not (known[-1] if known else 0.0) <= start_s < end_s:
            after = f", after {known[-1]:.12g} as its last end" if known else ""
            raise ValueError(
                f"expected a start of at least 0 before its end{after}, found {start_s:.12g} and "
                f"{end_s:.12g} for {device!r}; sort the rows, and join what overlaps"
            )
        if known and known[-1] == start_s:
            known[-1] = end_s
        else:
            known += start_s, end_s
    return {
        device: AvailabilityTrace(found[0] == 0, tuple(edge for edge in found if edge))
        for device, found in edges.items()
    }


def _instant(cell: str) -> float:
    """The seconds of a cell since the beginning of the scenario."""
    try:
        seconds = float(cell)
    except ValueError:
        raise ValueError(
            f"expected seconds from the beginning of the scenario, found {cell.strip()!r}; convert "
            f"dates and times to seconds"
        ) from None
    if (reason := epoch_of(seconds)) is not None:
        raise ValueError(f"expected seconds from the beginning, found {cell.strip()}, {reason}")
    return seconds


def _parsed(
    header: list[str], rows: Iterator[list[str]]
) -> Iterator[tuple[str, AvailabilityTrace]]:
    if header != HEADER:
        raise ValueError(
            f"expected the header {','.join(HEADER)} or device,{','.join(_INTERVAL)}, found "
            f"{','.join(header)}"
        )
    for row in rows:
        if len(row) != len(HEADER):
            raise ValueError(f"expected {len(HEADER)} columns, found {len(row)}")
        client, start, period, toggles = row
        if start not in ("0", "1"):
            raise ValueError(f"expected start to be 0 or 1, found {start!r}")
        seconds = tuple(map(_instant, toggles.replace(";", " ").split()))
        yield client, AvailabilityTrace(start == "1", seconds, float(period) if period else None)


# --- JSON ----------------------------------------------------------------------------------------


def _read_json(path: Path, text: str) -> dict[str, AvailabilityTrace]:
    try:
        found = json.loads(text, object_pairs_hook=_without_doubles)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}, line {error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: expected an object of clients, found {type(found).__name__}")
    return {client: _trace(f"{path}, client {client!r}", entry) for client, entry in found.items()}


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = dict(pairs)
    if len(keys) < len(pairs):
        names = [name for name, _ in pairs]
        double = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{double!r} is in one object twice, expected once")
    return keys


def _trace(source: str, entry: object) -> AvailabilityTrace:
    if not isinstance(entry, dict):
        raise ConfigError(f"{source}: expected start, toggles and period_s, found {entry!r}")
    checked = validate(_Entry, entry, source)
    try:
        return AvailabilityTrace(checked.start, tuple(checked.toggles), checked.period_s)
    except ValueError as error:
        raise ConfigError(f"{source}: {error}") from None
