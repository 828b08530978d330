"""Availability that replays recorded traces; `traces.py` reads their files."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from muster.client.availability.contract import (
    Availability,
    AvailabilityProcess,
    DeviceBatch,
    StepContext,
)
from muster.client.availability.traces import (
    Assign,
    AvailabilityTrace,
    Toggles,
    of_devices,
    read_traces,
)
from muster.common.bounds import LongTime
from muster.common.errors import ConfigError
from muster.common.seeds import BoolArray, FloatArray


class _Replay(AvailabilityProcess):
    def __init__(self, batch: DeviceBatch, traces: Sequence[AvailabilityTrace]) -> None:
        super().__init__(batch)
        self._toggles, self._devices = Toggles(traces), len(traces)

    def on(self, context: StepContext) -> BoolArray:
        return self._toggles.on(np.full(self._devices, context.time_s))

    def chance(self, context: StepContext) -> FloatArray:
        return self.on(context).astype(np.float64)

    def still_on(self, context: StepContext, until_s: FloatArray) -> BoolArray:
        return self._toggles.on(until_s)


class Replay(Availability):
    """A device is available when a recorded device was.

    A device replays the trace with its own name if the file has one, and otherwise one of the
    others. Time 0 of a trace is the beginning of
    the scenario.
    """

    file: str
    """Path of the traces: CSV with the columns client, start, period_s, toggles, or JSON with the
    same names, or CSV with the columns device, start, end, whose rows are the times for which a
    device is available. It may be gzip."""

    assign: Assign = "position"
    """Which trace a device replays that has none with its name. position: that at its position in
    the group, modulo the number of traces. random: one that it draws, for samples of many
    traces."""

    period_s: LongTime | None = None
    """Seconds after which traces begin again that have no period of their own. Absent: they do not,
    and their last state lasts."""

    def process(self, batch: DeviceBatch) -> AvailabilityProcess:
        traces = _read(self.file, Path(self.file).stat().st_mtime_ns)
        who = batch.seed, batch.clients, batch.positions.tolist()
        own = of_devices(traces, *who, self.assign)
        return _Replay(batch, [self._repeated(trace) for trace in own])

    def _repeated(self, trace: AvailabilityTrace) -> AvailabilityTrace:
        if self.period_s is None or trace.period_s is not None:
            return trace
        toggles = tuple(toggle for toggle in trace.toggles if toggle < self.period_s)
        return AvailabilityTrace(trace.start, toggles, self.period_s)

    def check(self, group: str, size: int, step_s: float) -> None:
        try:
            read_traces(Path(self.file))
        except ConfigError as error:
            raise ValueError(str(error)) from None


@lru_cache(maxsize=1)
def _read(file: str, modified_ns: int) -> dict[str, AvailabilityTrace]:
    """The traces of a file, read once for all devices of a process."""
    return read_traces(Path(file))
