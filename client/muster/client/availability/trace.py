"""Availability that replays recorded traces; `traces.py` reads their files."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np

from muster.client.availability.contract import (
    Availability,
    AvailabilityProcess,
    DeviceBatch,
    StepContext,
)
from muster.client.availability.traces import AvailabilityTrace, read_traces
from muster.common.errors import ConfigError
from muster.common.seeds import BoolArray, FloatArray


class _Replay(AvailabilityProcess):
    def __init__(self, batch: DeviceBatch, traces: Mapping[str, AvailabilityTrace]) -> None:
        super().__init__(batch)
        recorded = list(traces.values())
        own = [
            traces.get(client) or recorded[position % len(recorded)]
            for client, position in zip(batch.clients, batch.positions, strict=True)
        ]
        self._start = np.array([trace.start for trace in own])
        self._period_s = np.array([trace.period_s or np.inf for trace in own])
        # All toggles in one row; those of device i lie in [first_i, first_(i+1)).
        self._first = np.cumsum([0, *(len(trace.toggles) for trace in own)])
        toggles = (toggle for trace in own for toggle in trace.toggles)
        self._toggles = np.fromiter(toggles, np.float64, self._first[-1])

    def on(self, context: StepContext) -> BoolArray:
        return self._on(np.full(len(self._start), context.time_s))

    def chance(self, context: StepContext) -> FloatArray:
        return self.on(context).astype(np.float64)

    def still_on(self, context: StepContext, until_s: FloatArray) -> BoolArray:
        return self._on(until_s)

    def _on(self, times_s: FloatArray) -> BoolArray:
        """Whether each device is available at `times_s`, an instant for every device.

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


class Replay(Availability):
    """A device is available when a recorded device was.

    A device replays the trace with its own name if the file has one. Otherwise it replays the trace
    at its position in the group, modulo the number of traces. Time 0 of a trace is the beginning of
    the scenario.
    """

    file: str
    """Path of the traces: CSV with the columns client, start, period_s, toggles, or JSON with the
    same names."""

    def process(self, batch: DeviceBatch) -> AvailabilityProcess:
        return _Replay(batch, _read(self.file, Path(self.file).stat().st_mtime_ns))

    def check(self, group: str, size: int, step_s: float) -> None:
        try:
            read_traces(Path(self.file))
        except ConfigError as error:
            raise ValueError(str(error)) from None


@lru_cache(maxsize=1)
def _read(file: str, modified_ns: int) -> dict[str, AvailabilityTrace]:
    """The traces of a file, read once for all devices of a process."""
    return read_traces(Path(file))
