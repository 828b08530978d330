"""The horizontal axis of figures over rounds, labelled with hours of the day in lockstep runs.

Data is always drawn at rounds: round r reaches from r - 0.5 to r + 0.5. Only the labels differ.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from muster.emulator.results.account import Account
from muster.emulator.results.report import style
from muster.emulator.results.report.hours import MOST_TICKS, SHORTEST_MIN, Hours

MOST_PANELS = 8

_KEYS = 7  # legend entries in a row, if they are short
_LETTER_IN, _MARK_IN = 0.078, 0.5  # the widths of a letter of a legend, and of an entry's mark
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
        hours: the hours of the day.
    """

    first: int
    last: int
    size: int
    round_min: float | None
    hours: Hours

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
            Hours.of(clock.get("starts_at_h", 0.0), _time_zones(account)),
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

    def label(self, axes: Axes, most_ticks: int = MOST_TICKS) -> None:
        """Label the horizontal axis with the hours of the day in lockstep, or else with rounds."""
        axes.set_xlim(self.first - 0.5, self.last + 0.5)
        begin, end = (number * (self.round_min or 0.0) for number in (self.first - 1, self.last))
        if self.round_min is None or end - begin < SHORTEST_MIN:
            axes.set_xlabel("round")
            style.count(axes.xaxis)
            return
        elapsed, labels = self.hours.ticks(begin, end, most_ticks)
        axes.set_xticks(elapsed / self.round_min + 0.5, labels)
        axes.set_xlabel(self.hours.name)


def _time_zones(account: Account) -> list[Any]:
    """The setting of every group, in the order of the scenario."""
    groups = account.scenario.get("groups", [])
    return [group.get("device", {}).get("time_zone", 0.0) for group in groups]


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
    columns = _columns([str(handle.get_label()) for handle in handles])
    by_column = [handle for column in range(columns) for handle in handles[column::columns]]
    legend = figure.legend(handles=by_column, loc="outside upper left", ncols=columns,
                           frameon=False, fontsize=9, handlelength=1.1, columnspacing=1.4,
                           labelcolor=style.INK, borderaxespad=0.2)  # fmt: skip
    for entry in legend.get_texts():
        entry.set_parse_math(False)


def _columns(labels: Sequence[str]) -> int:
    """The most legend entries that fit into a row."""
    for columns in range(min(_KEYS, len(labels)), 1, -1):
        longest = (max(map(len, labels[column::columns])) for column in range(columns))
        if sum(_MARK_IN + _LETTER_IN * letters for letters in longest) <= style.WIDTH_IN:
            return columns
    return 1


def nothing(title: str, text: str) -> Figure:
    """A figure that only says why there is nothing to show."""
    figure = style.new_figure(1.5)
    style.say(figure.subplots(), title, text)
    return figure
