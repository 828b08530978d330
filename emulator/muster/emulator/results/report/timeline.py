"""The horizontal axis of figures over rounds, labelled with scenario time in lockstep runs.

Data is always drawn at rounds: round r reaches from r - 0.5 to r + 0.5. Only the labels differ.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from muster.emulator.results.account import Account
from muster.emulator.results.report import style

MOST_PANELS = 8

_STEPS_MIN = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)
_MOST_TICKS = 11
_KEYS = 7  # legend entries in a row
_FEWEST_BINS, _MOST_BINS, _FEWEST_ROWS = 10, 120, 8
_PANEL_IN, _BETWEEN_IN, _AROUND_IN = 1.15, 0.4, 1.0

Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Timeline:
    """The rounds of a run in bins of equal size; the last bin may be shorter.

    Attributes:
        first, last: the first and the last committed round.
        size: rounds in a bin.
        round_min: scenario minutes from round to round in lockstep, else None.
        starts_at_min: minute of the day, UTC, at which round 1 opens.
    """

    first: int
    last: int
    size: int
    round_min: float | None
    starts_at_min: float

    @classmethod
    def of(cls, account: Account, most: int) -> Self:
        """The timeline, in at most `most` bins, of a run that has committed a round."""
        rounds, clock = account.rounds["round"], account.scenario.get("clock", {})
        first, last = int(rounds.min()), int(rounds.max())
        lockstep = clock.get("kind") == "rounds" and "round_s" in clock
        return cls(
            first,
            last,
            math.ceil((last - first + 1) / most),
            clock["round_s"] / 60 if lockstep else None,
            60 * clock.get("starts_at_h", 0.0),
        )

    @property
    def bins(self) -> int:
        return math.ceil((self.last - self.first + 1) / self.size)

    @property
    def edges(self) -> Floats:
        """The edges of the bins, shape (bins + 1,)."""
        edges = self.first - 0.5 + self.size * np.arange(self.bins + 1.0)
        edges[-1] = self.last + 0.5
        return edges

    @property
    def middles(self) -> Floats:
        return (self.edges[:-1] + self.edges[1:]) / 2

    def bins_of(self, rounds: pd.Series) -> npt.NDArray[np.int64]:
        """The bin, counted from 0, of each of `rounds`."""
        return (rounds.to_numpy() - self.first) // self.size

    def label(self, axes: Axes) -> None:
        """Label the horizontal axis with scenario time and hour of the day, or with rounds."""
        axes.set_xlim(self.first - 0.5, self.last + 0.5)
        begin = (self.first - 1) * (self.round_min or 0.0)
        end = self.last * (self.round_min or 0.0)
        steps = [step for step in _STEPS_MIN if (end - begin) / step <= _MOST_TICKS]
        if self.round_min is None or end - begin < 2 * _STEPS_MIN[0]:
            axes.set_xlabel("round")
            style.count(axes.xaxis)
            return
        step = steps[0] if steps else 1440 * math.ceil((end - begin) / 1440 / _MOST_TICKS)
        clock = np.arange(math.ceil((begin + self.starts_at_min) / step) * step,
                          end + self.starts_at_min + 1e-6, step)  # fmt: skip
        elapsed = clock - self.starts_at_min
        labels = [
            f"{_hours(then)}\n{_time(hour)}" for then, hour in zip(elapsed, clock, strict=True)
        ]
        axes.set_xticks(elapsed / self.round_min + 0.5, labels)
        axes.set_xlabel("scenario time, and hour of the day (UTC)")


def _hours(minutes: float) -> str:
    hours = round(minutes / 60, 2)
    return f"{hours:g} h" if hours >= 1 or not hours else f"{minutes:.3g} min"


def _time(minutes: float) -> str:
    hour, minute = divmod(round(minutes) % 1440, 60)
    return f"{hour:02}:{minute:02}"


def bins_for(rows: int, panels: int) -> int:
    """A number of bins that is large enough to show a day and leaves some rows in each bin."""
    return min(max(rows // (_FEWEST_ROWS * panels), _FEWEST_BINS), _MOST_BINS)


def panels(groups: Sequence[str], of: int) -> tuple[Figure, list[Axes]]:
    """A figure with a panel for each group, one below the other on the same timeline.

    Args:
        of: how many groups there are.
    """
    figure = style.new_figure(_AROUND_IN + len(groups) * (_PANEL_IN + _BETWEEN_IN))
    if of > len(groups):
        note_left_out(figure, len(groups), of)
    return figure, list(figure.subplots(len(groups), sharex=True, squeeze=False)[:, 0])


def note_left_out(figure: Figure, shown: int, of: int) -> None:
    note = f"{shown} of {of} groups are shown"
    figure.supxlabel(note, x=0.01, ha="left", fontsize=9, color=style.MUTED)


def most_called(groups: pd.Series) -> list[str]:
    """The groups that get a panel: those with the most rows, in the order of the population.

    Args:
        groups: a categorical column, with its categories in the order of the population.
    """
    most = groups.value_counts().head(MOST_PANELS)
    return [name for name in groups.cat.categories if most.get(name, 0)]


def key(figure: Figure, handles: Sequence[Artist]) -> None:
    """Draw one legend for all panels, with entries in reading order."""
    by_column = [handle for column in range(_KEYS) for handle in handles[column::_KEYS]]
    figure.legend(handles=by_column, loc="outside upper left", ncols=_KEYS, frameon=False,
                  fontsize=9, handlelength=1.1, columnspacing=1.4, labelcolor=style.INK,
                  borderaxespad=0.2)  # fmt: skip


def nothing(title: str, text: str) -> Figure:
    """A figure that only says why there is nothing to show."""
    figure = style.new_figure(1.5)
    style.say(figure.subplots(), title, text)
    return figure
