"""Reads and writes files of availability traces.

A trace is the state at time 0 and the instants at which it changes, in the minimal text form
proposed for Plato (TL-System/plato, issue 101). In CSV, toggles are separated by spaces, and a
trace that repeats has a period:

    client,start,period_s,toggles
    phone-0,1,86400,25200 61200 64800
    phone-1,0,,3600

In JSON:

    {"phone-0": {"start": true, "toggles": [25200, 61200, 64800], "period_s": 86400},
     "phone-1": {"start": false, "toggles": [3600], "period_s": null}}
"""

import csv
import io
import json
import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from muster.common.config import Section, validate
from muster.common.errors import ConfigError
from muster.common.files import write_atomic

HEADER = ["client", "start", "period_s", "toggles"]


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


class _Entry(Section):
    start: bool
    toggles: list[float]
    period_s: float | None


def read_traces(path: Path) -> dict[str, AvailabilityTrace]:
    """Read a file of traces, .csv or .json; return the traces by client, in the file's order.

    Raises:
        ConfigError: the file cannot be read or has a mistake; the message names the line or client.
    """
    read = {".csv": _read_csv, ".json": _read_json}.get(path.suffix.lower())
    if read is None:
        raise ConfigError(f"{path} is neither .csv nor .json; expected a file of traces")
    try:
        traces = read(path, path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"cannot read the traces {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not text in UTF-8: {error}") from None
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
        rows = csv.writer(file, lineterminator="\n")
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
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    traces = dict[str, AvailabilityTrace]()
    try:
        for client, trace in _parsed(rows):
            if client in traces:
                raise ValueError(f"{client!r} has a trace already, expected one per client")
            traces[client] = trace
    except (ValueError, csv.Error) as error:
        raise ConfigError(f"{path}, line {rows.line_num}: {error}") from None
    return traces


def _parsed(rows: Iterator[list[str]]) -> Iterator[tuple[str, AvailabilityTrace]]:
    if (header := next(rows, [])) != HEADER:
        raise ValueError(f"expected the header {','.join(HEADER)}, found {','.join(header)}")
    for row in rows:
        if len(row) != len(HEADER):
            raise ValueError(f"expected {len(HEADER)} columns, found {len(row)}")
        client, start, period, toggles = row
        if start not in ("0", "1"):
            raise ValueError(f"expected start to be 0 or 1, found {start!r}")
        seconds = tuple(map(float, toggles.split()))
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
