"""The settings of the energy account, and the carbon intensity of the grid as a file has it."""

from functools import lru_cache
from pathlib import Path
from typing import Annotated, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from muster.common.config import Section
from muster.common.file_tables import read_table
from muster.common.seeds import FloatArray

INTENSITY = "gCO2/kWh"
"""The column with the intensity."""

_TIMES = {"hour": 3600.0, "second": 1.0}
"""The column with the time: of the device's local day, or of the scenario; with its seconds."""

_DAY_S = 86_400.0
_LONGEST_S = 1e9
_MOST = 1e4
"""Coal is near 1000 g/kWh; a larger number has another unit."""


class GridIntensity(NamedTuple):
    """Grams of CO₂ equivalent per kWh over time, constant in each piece.

    Attributes:
        local: whether it is by the local time of day of each device, and repeats every day;
            otherwise by scenario time, and the last piece goes on.
        instants: ends of the pieces in seconds; the first is 0.
        totals: its integral until each instant.
    """

    local: bool
    instants: FloatArray
    totals: FloatArray

    def mean(self, begin_s: FloatArray, seconds: FloatArray) -> FloatArray:
        """The mean over spells.

        Args:
            begin_s: when they begin: seconds of the local day, or of the scenario.
            seconds: how long they last; those below a millisecond count as one.
        """
        seconds = np.maximum(seconds, 1e-3)
        return (self._total(begin_s + seconds) - self._total(begin_s)) / seconds

    def _total(self, at_s: FloatArray) -> FloatArray:
        days = np.floor(at_s / self.instants[-1])
        within = np.interp(at_s - days * self.instants[-1], self.instants, self.totals)
        return np.asarray(days * self.totals[-1] + within)


def read_intensity(file: str) -> GridIntensity:
    """Read a file with the columns `hour` or `second`, and `gCO2/kWh`.

    Raises:
        ValueError: it cannot be read. The message names file and line, and says what was expected.
    """
    try:
        return _read(file, Path(file).stat().st_mtime_ns)
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from None


@lru_cache(maxsize=16)
def _read(file: str, changed_ns: int) -> GridIntensity:
    table = read_table(file)
    times = [name for name in _TIMES if name in table.header]
    if len(times) != 1 or INTENSITY not in table.header:
        raise ValueError(
            f"{file}, line 1: expected a column {INTENSITY!r}, and a column 'hour' (of the local "
            f"day) or 'second' (of the scenario); found {', '.join(table.header) or 'nothing'}"
        )
    if not table.size:
        raise ValueError(f"{file} has no row; expected at least one, with the time 0")
    [time], local = times, "hour" in times
    end_s = _DAY_S if local else _LONGEST_S
    begins = table.numbers(time, 0, end_s / _TIMES[time]) * _TIMES[time]
    grams = table.numbers(INTENSITY, 0, _MOST)
    if begins[0] != 0:
        found = begins[0] / _TIMES[time]
        raise ValueError(f"{table.place(0)}: expected the {time} 0 first, found {found:g}")
    edges = np.append(begins, end_s)
    for row in np.flatnonzero(np.diff(edges) <= 0)[:1]:
        later = min(int(row) + 1, table.size - 1)
        raise ValueError(
            f"{table.place(later)}: expected a {time} after that of the line before, and before "
            f"{end_s / _TIMES[time]:g}, found {begins[later] / _TIMES[time]:g}; sort the lines, "
            f"and keep one for each {time}"
        )
    totals = np.append(0.0, np.cumsum(np.diff(edges) * grams))
    return GridIntensity(local, edges, totals)


class EnergySettings(Section):
    """The energy of the devices' work, computed from the ledger ([energy.md](energy.md))."""

    voltage: Annotated[float, Field(ge=0.1, le=1000)] = 3.85
    """Nominal voltage of batteries, by which their currents (`groups.device.battery`) become watts.
    Assumption: that of a lithium-ion cell of a phone."""

    intensity: str | None = None
    """The file with the carbon intensity of the grid, relative to the scenario file: CSV or Parquet
    with a column `gCO2/kWh`, and one with the time from which it holds: `hour`, of each device's
    local day, or `second`, of the scenario. Absent: no carbon is computed."""

    @model_validator(mode="after")
    def _can_be_read(self) -> Self:
        if self.intensity is not None:
            try:
                read_intensity(self.intensity)
            except ValueError as error:
                raise ValueError(f"intensity: {error}") from None
        return self
