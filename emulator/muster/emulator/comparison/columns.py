"""Formats the measures of a comparison: units, decimals, and mean ± interval in a cell."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Unit = tuple[float, str]
"""The divisor of a value, and the unit of the quotient."""


@dataclass(frozen=True, slots=True)
class Column:
    """The format of a measure.

    Attributes:
        unit: returns the unit for the size of a mean.
        places: returns the number of decimals for the size of a number in its unit.
        difference: the unit of a difference, if it is another.
    """

    title: str
    unit: Callable[[float], Unit] = lambda most: (1.0, "")
    places: Callable[[float], int] = lambda most: 1
    difference: str = ""


def cell(row: Mapping[Any, Any], column: Column, runs: int, signed: bool) -> str:
    """For example "95.1 ± 0.8 %", and if some of `runs` have no value, how many have one."""
    if not row["n"]:
        return f"– (0 of {runs})" if runs > 1 else "–"
    mean, half = row["mean"], row["high"] - row["mean"]
    per, unit = column.unit(abs(mean))
    if signed and column.difference:
        unit = column.difference
    places = column.places(max(abs(mean), 0 if math.isnan(half) else half) / per)
    width = "–" if math.isnan(half) else f"{half / per:.{places}f}"
    text = f"{mean / per:{'+' if signed else ''}.{places}f} ± {width}{unit and f' {unit}'}"
    return text if row["n"] == runs else f"{text} ({row['n']} of {runs})"


def _bytes(most: float) -> Unit:
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if most >= 1024**power:
            return 1024.0**power, unit
    return 1.0, "B"


def _seconds(most: float) -> Unit:
    return (1.0, "s") if most < 600 else (60.0, "min") if most < 7200 else (3600.0, "h")


def _significant(most: float) -> int:
    return 4 if most == 0 else max(0, 3 - math.floor(math.log10(most)))


def _seconds_places(most: float) -> int:
    return 2 if most < 10 else 1


def _percent(most: float) -> Unit:
    return 0.01, "%"


ENDS: Mapping[str, Column] = {
    "accuracy": Column("accuracy", _percent, difference="points"),
    "loss": Column("loss", places=_significant),
    "participation_rate": Column("participation", _percent, difference="points"),
    "bytes": Column("traffic", _bytes),
    "scenario_s": Column("scenario time", _seconds, _seconds_places),
}
TARGETS: Mapping[str, Column] = {
    "rounds_to_target": Column("rounds"),
    "scenario_s_to_target": Column("scenario time", _seconds, _seconds_places),
    "bytes_to_target": Column("traffic", _bytes),
}
