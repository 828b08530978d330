"""The look of all figures: colours, sizes and the settings that all axes share.

Figures are `matplotlib.figure.Figure` objects. pyplot, its global state and its back ends are never
touched, so drawing a report inside another program or a notebook changes nothing there.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

INK, MUTED, GRID = "#1f2933", "#66727f", "#e6e9ed"
# Okabe and Ito's blue and vermillion, which colour-blind readers tell apart.
BLUE, ORANGE, GREEN, AMBER = "#0072b2", "#d55e00", "#009e73", "#e69f00"
PALE, LIGHT = "#d8e3ec", "#8fbcdb"

WIDTH_IN, DPI = 9.0, 160
DASHES = (0, (4, 3))
_TITLE_LETTER_IN, _MARGIN_IN = 0.085, 0.5  # the mean width of a letter; labels beside a drawing
_MOST_BARS, _SEPARATE_BARS, _FEWEST_SLOTS = 250, 60, 9


def new_figure(height_in: float) -> Figure:
    return Figure(figsize=(WIDTH_IN, height_in), dpi=DPI, layout="constrained", facecolor="white")


def tidy(axes: Axes, title: str, x: str = "", y: str = "", key: bool = False) -> None:
    """Give `axes` a title and labels, and remove everything else that is not data.

    Args:
        title: what the figure shows, as a finding; it takes several lines if it has to.
        key: leave room between title and drawing, for `key_above`.
    """
    letters = int((_width_in(axes) - _MARGIN_IN) / _TITLE_LETTER_IN)
    axes.set_title(textwrap.fill(title, letters), loc="left", fontsize=10.5, fontweight="bold",
                   color=INK, pad=25 if key else 10, parse_math=False)  # fmt: skip
    axes.set_xlabel(x, color=MUTED, fontsize=9.5)
    axes.set_ylabel(y, color=MUTED, fontsize=9.5)
    axes.tick_params(which="both", colors=MUTED, labelsize=9, length=0)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(MUTED)


def _width_in(axes: Axes) -> float:
    """The width of the part of the page that `axes` has, with its labels."""
    spec = axes.get_subplotspec()
    return WIDTH_IN * len(spec.colspan) / spec.get_gridspec().ncols if spec else WIDTH_IN


def key_above(axes: Axes, handles: Sequence[Artist] | None = None, columns: int = 4) -> None:
    """Draw the legend in one row between title and drawing."""
    axes.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=columns,
        frameon=False,
        fontsize=9,
        handlelength=1.1,
        columnspacing=1.4,
        labelcolor=INK,
        borderpad=0.3,
        borderaxespad=0,
    )


def course(axes: Axes, values: pd.Series, **looks: Any) -> None:
    """Draw a measure of the model, or another state that stays, over rounds as steps.

    A model stays as it is until the next round that folds an update. A slope through empty rounds
    would show progress that did not happen.

    Args:
        values: indexed by round; evaluations of empty rounds may be missing.
        looks: keyword arguments of `Axes.plot`.
    """
    axes.plot(values, drawstyle="steps-post", **looks)


def by_round(axes: Axes, values: pd.Series, **looks: Any) -> None:
    """Draw a quantity of single rounds as a level over each round.

    There is a gap over every round that has no value, for example because it folded no update. A
    slope through such rounds would show values that nobody measured.

    Args:
        values: indexed by round.
        looks: keyword arguments of `Axes.stairs`.
    """
    rounds = np.arange(values.index.min(), values.index.max() + 1)
    edges = np.append(rounds, rounds[-1] + 1) - 0.5
    axes.stairs(values.reindex(rounds), edges, baseline=None, **looks)


def count(axis: Axis, most_ticks: int = 8) -> None:
    """Put ticks only at whole numbers, for counts of rounds or clients."""
    axis.set_major_locator(
        MaxNLocator(most_ticks, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1)
    )


def say(axes: Axes, title: str, text: str) -> None:
    """Show a text in place of a drawing that has no data."""
    tidy(axes, title)
    axes.set_axis_off()
    axes.text(0.0, 0.9, text, transform=axes.transAxes, fontsize=10, color=MUTED, va="top")


def bars(axes: Axes, rounds: pd.DataFrame, colours: Mapping[str, str]) -> int:
    """Draw one bar per round and column of `rounds`, over each other in the order of `colours`.

    If there are many rounds, a bar is the mean of neighbouring rounds.

    Args:
        rounds: indexed by round; its columns are the keys of `colours`.

    Returns:
        The number of rounds per bar.
    """
    first, last = rounds.index[0], rounds.index[-1]
    size = math.ceil(len(rounds) / _MOST_BARS)
    means = rounds.groupby(first + (rounds.index - first) // size * size).mean()
    gap = 0.2 if len(rounds) <= _SEPARATE_BARS else 0.0
    for column, colour in colours.items():
        axes.bar(means.index - 0.5 + gap / 2, means[column], size - gap, align="edge", color=colour,
                 label=column)  # fmt: skip
    # A single bar as wide as the page would look like a mistake.
    margin = max(0.0, (_FEWEST_SLOTS - len(rounds)) / 2)
    axes.set(xlim=(first - 0.5 - margin, last + 0.5 + margin), ylim=(0, None))
    if margin:
        axes.set_xticks(list(rounds.index))
    else:
        count(axes.xaxis)
    return size
