"""The hours of the day on the horizontal axis of figures, the same for plans and reports."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

MOST_TICKS = 11
SHORTEST_MIN = 2.0
"""Shorter times, in minutes, cannot be labelled with hours and minutes."""

_DAY_MIN = 1440
_STEPS_MIN = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, _DAY_MIN)

Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Hours:
    """The hours of the day of a scenario.

    Attributes:
        starts_at_min: minute of the day at scenario time 0.
        name: what the hours are, for the label of the axis.
    """

    starts_at_min: float
    name: str

    @classmethod
    def of(cls, starts_at_h: float, time_zones: Sequence[Any]) -> Self:
        """The local hours of the devices, or those of UTC if the devices' time zones differ.

        Args:
            starts_at_h: hour of the day, UTC, at scenario time 0.
            time_zones: the setting `device.time_zone` of every group: hours, or a distribution.
        """
        first = time_zones[0] if time_zones else 0.0
        if not isinstance(first, int | float) or any(zone != first for zone in time_zones):
            name = "hour of the day (UTC; the time zones of the devices differ)"
            return cls(60 * starts_at_h, name)
        local = f"UTC{first:+g}" if first else "UTC"
        starts_at_min = 60 * (starts_at_h + first) % _DAY_MIN
        return cls(starts_at_min, f"hour of the day (local time of the devices, {local})")

    def ticks(self, begin: float, end: float, most: int = MOST_TICKS) -> tuple[Floats, list[str]]:
        """Ticks between two moments, and their labels.

        If more than a day lies between them, the first tick of each day also has the number of the
        day. Day 1 is the day of scenario time 0.

        Args:
            begin, end: scenario time in minutes.
            most: the most steps from tick to tick.

        Returns:
            The scenario time of each tick in minutes, shape (ticks,), and the labels.
        """
        step = _step(end - begin, most)
        first = math.ceil(round((begin + self.starts_at_min) / step, 9)) * step
        clock = np.arange(first, end + self.starts_at_min + 1e-6, step)
        labels, before = [], None
        for moment in clock:
            day, minute = divmod(round(moment), _DAY_MIN)
            label = f"{minute // 60:02}:{minute % 60:02}"
            if end - begin > _DAY_MIN and day != before:
                label += f"\nday {day + 1}"
            labels.append(label)
            before = day
        return np.asarray(clock - self.starts_at_min, np.float64), labels


def _step(minutes: float, most: int) -> int:
    """Minutes between two ticks: a step that divides a day, or whole days."""
    for step in _STEPS_MIN:
        if minutes / step <= most:
            return step
    return _DAY_MIN * math.ceil(minutes / _DAY_MIN / most)
