"""The horizontal axis of charts over rounds, labelled with hours of the day in lockstep runs.

If all rounds are equally long, or if scenario time is not known, data is drawn at rounds: round r
reaches from r - 0.5 to r + 0.5, and only the labels differ. In the buffered mode, and with the
clock `modelled`, a round lasts as long as its updates need, so data is drawn at scenario time, in
minutes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from muster.emulator.records.account import Account
from muster.emulator.records.scenario_time import lockstep
from muster.emulator.records.summary import seconds_text
from muster.emulator.report.chart import MOST_PANELS, Axis, Chart, Layer
from muster.emulator.report.hours import MOST_TICKS, SHORTEST_MIN, Hours

_FEWEST_BINS, _MOST_BINS, _FEWEST_ROWS = 10, 120, 8

Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Timeline:
    """The rounds of a run in bins of equal size; the last bin may be shorter.

    Attributes:
        first, last: the first and the last committed round.
        size: rounds in a bin, or minutes of scenario time if rounds differ in length.
        round_min: scenario minutes from round to round in lockstep, if all are equally long.
        hours: the hours of the day.
        opens_min: scenario minutes at which the rounds open, and at which the last one ends, shape
            (rounds + 1,); None if all rounds are equally long, or if scenario time is not known.
    """

    first: int
    last: int
    size: float
    round_min: float | None
    hours: Hours
    opens_min: Floats | None = None

    @classmethod
    def of(cls, account: Account, most: int) -> Self:
        """The timeline, in at most `most` bins, of a run that has committed a round."""
        rounds, clock = account.rounds["round"], account.scenario.get("clock", {})
        first, last = int(rounds.min()), int(rounds.max())
        equal = clock.get("kind") == "rounds" and "round_s" in clock
        hours = Hours.of(clock.get("starts_at_h", 0.0), _time_zones(account))
        opens_min = _unequal_rounds(account.rounds) if lockstep(account) else None
        if opens_min is not None:
            bins = min(most, last - first + 1)
            size = float(opens_min[-1] - opens_min[0]) / bins
            return cls(first, last, size, None, hours, opens_min)
        size = math.ceil((last - first + 1) / most)
        return cls(first, last, size, clock["round_s"] / 60 if equal else None, hours)

    @property
    def bins(self) -> int:
        if self.opens_min is not None:
            return int(np.rint((self.opens_min[-1] - self.opens_min[0]) / self.size))
        return math.ceil((self.last - self.first + 1) / self.size)

    @property
    def edges(self) -> Floats:
        """The edges of the bins, shape (bins + 1,)."""
        begin, end = self._span
        edges = begin + self.size * np.arange(self.bins + 1.0)
        edges[-1] = end
        return edges

    @property
    def _span(self) -> tuple[float, float]:
        if self.opens_min is not None:
            return float(self.opens_min[0]), float(self.opens_min[-1])
        return self.first - 0.5, self.last + 0.5

    @property
    def grain(self) -> str:
        """What a bin holds, for example "12 rounds"; empty if it is one round."""
        if self.opens_min is not None:
            return seconds_text(60 * self.size)
        return f"{self.size} rounds" if self.size > 1 else ""

    def bins_of(self, rounds: pd.Series) -> npt.NDArray[np.int64]:
        """The bin, counted from 0, in which each of `rounds` opens."""
        if self.opens_min is None:
            bins = (rounds.to_numpy() - self.first) // int(self.size)
        else:
            after = (self.places(rounds) - self.opens_min[0]) / self.size
            bins = np.minimum(after.astype(np.int64), self.bins - 1)
        return np.asarray(bins, np.int64)

    def places(self, rounds: pd.Series, share: pd.Series | float = 0.0) -> Floats:
        """The horizontal places in `rounds`, after a share of each: 0 is where it opens."""
        if self.opens_min is None:
            return np.asarray(rounds - 0.5 + share, np.float64)
        at = rounds.to_numpy() - self.first
        opens, ends = self.opens_min[at], self.opens_min[at + 1]
        return np.asarray(opens + (ends - opens) * np.asarray(share), np.float64)

    def axis(self, most_ticks: int = MOST_TICKS) -> Axis:
        """The horizontal axis: hours of the day in lockstep, or else rounds."""
        low, high = self._span
        if self.opens_min is not None:
            return self._of_hours(*self.hours.ticks(low, high, most_ticks))
        begin, end = (number * (self.round_min or 0.0) for number in (self.first - 1, self.last))
        if self.round_min is None or end - begin < SHORTEST_MIN:
            return Axis("round", "count", low, high)
        elapsed, labels = self.hours.ticks(begin, end, most_ticks)
        return self._of_hours(elapsed / self.round_min + 0.5, labels)

    def _of_hours(self, places: Floats, labels: Sequence[str]) -> Axis:
        ticks = list(zip(places.tolist(), labels, strict=True))
        return Axis(self.hours.name, "number", *self._span, ticks=ticks)

    def chart(self, title: str, layers: Sequence[Layer], y: Axis, **looks: Any) -> Chart:
        """A chart with this horizontal axis."""
        return Chart(title, layers, self.axis(), y, over_rounds=self.opens_min is None, **looks)


def _unequal_rounds(rounds: pd.DataFrame) -> Floats | None:
    """The `opens_min` of a timeline in lockstep; None if all rounds are equally long, if their
    times are not known, or if they are too short for hours and minutes."""
    if rounds[["scenario_s", "next_s"]].isna().to_numpy().any():
        return None
    opens_min = np.append(rounds["scenario_s"], rounds["next_s"].iloc[-1]) / 60
    lengths = np.diff(opens_min)
    if np.allclose(lengths, lengths[0]) or opens_min[-1] - opens_min[0] < SHORTEST_MIN:
        return None
    return opens_min


def _time_zones(account: Account) -> list[Any]:
    """The setting of every group, in the order of the scenario."""
    groups = account.scenario.get("groups", [])
    return [group.get("device", {}).get("time_zone", 0.0) for group in groups]


def bins_for(rows: int, charts: int) -> int:
    """A number of bins that is large enough to show a day and leaves some rows in each bin."""
    return min(max(rows // (_FEWEST_ROWS * charts), _FEWEST_BINS), _MOST_BINS)


def most_called(groups: pd.Series) -> list[str]:
    """The groups that get a chart: those with the most rows, in the order of the population.

    Args:
        groups: a categorical column, with its categories in the order of the population.
    """
    most = groups.value_counts().head(MOST_PANELS)
    return [name for name in groups.cat.categories if most.get(name, 0)]
