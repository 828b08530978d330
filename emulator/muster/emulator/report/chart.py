"""Charts as data. The script of the page draws them, and `figure_files` draws them with matplotlib.

A chart has at most `MOST_POINTS` values a layer, so that a page stays small however long a run is.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd

Kind: TypeAlias = Literal[
    "line", "steps", "levels", "filled", "dots", "bars", "across", "down", "spans"
]
Text: TypeAlias = Literal["number", "count", "percent"]
Numbers: TypeAlias = Sequence[float | None]

COLOURS = ("blue", "orange", "green", "purple", "amber", "sky", "navy", "brown")
"""Names of colours that colour-blind readers tell apart (those of Okabe and Ito, and two more), for
groups in the order of the population. `page.css` and `style.HEX` say what they are."""

MOST_PANELS = 8
"""The most charts of groups in a figure."""

MOST_POINTS = 1000
_MOST_BARS, _SEPARATE_BARS, _FEWEST_SLOTS = 250, 60, 9


@dataclass(frozen=True, slots=True)
class Layer:
    """Values that are drawn in the same way.

    Attributes:
        kind: "line" joins points, and "dots" marks them. "steps" keeps each value until the next.
            "levels" has a value y between each two of the edges x, and "filled" is the area from
            `low` to such levels. "bars" reach from x to `ends`, and from 0 to y. "spans" are bars
            in the rows y, from x to `ends`. "across" and "down" are lines through the whole chart
            at each of y, or at each of x.
        label: what the key says of it; a layer without one is not in the key.
        low: the lower edge of "filled"; empty for 0.
    """

    kind: Kind
    x: Numbers
    y: Numbers
    colour: str = "blue"
    label: str = ""
    ends: Numbers = ()
    low: Numbers = ()
    width: float = 1.6
    dashed: bool = False
    opacity: float = 1.0


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a chart.

    Attributes:
        text: how numbers are written.
        low, high: the ends of the axis; None for those of the data.
        ticks: places with their labels; empty for round numbers.
    """

    label: str = ""
    text: Text = "number"
    low: float | None = None
    high: float | None = None
    log: bool = False
    ticks: Sequence[tuple[float, str]] = ()


@dataclass(frozen=True, slots=True)
class Cells:
    """A grid of coloured cells; its columns have equal widths from `x.low` to `x.high`.

    Attributes:
        rows: a string for each row from the top, with a letter for each cell: the place of its
            colour in `key`, where "a" is the first; a space for a cell without a colour.
        key: colours with what they mean.
        texts: what stands in the cells; empty for nothing.
    """

    rows: Sequence[str]
    key: Sequence[tuple[str, str]]
    texts: Sequence[Sequence[str]] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart.

    Attributes:
        title: what the chart shows, as a finding.
        rows: the number of rows that spans or cells have, which decides how tall the chart is.
        over_rounds: whether x is the round, so that rounds with a fault can be shaded.
    """

    title: str
    layers: Sequence[Layer] = ()
    x: Axis = Axis()
    y: Axis = Axis(low=0.0)
    rows: int = 0
    over_rounds: bool = False
    cells: Cells | None = None


SHARE = Axis(text="percent", low=0.0, high=1.0)
"""A vertical axis of shares."""


def numbers(values: Any) -> Numbers:
    """Values with eight digits, and None for those that are not finite."""
    found = np.asarray(values, np.float64).tolist()
    return [float(f"{value:.8g}") if math.isfinite(value) else None for value in found]


def line(kind: Kind, x: Any, y: Any, colour: str, label: str = "", **looks: Any) -> Layer:
    """A layer of numbers of any kind."""
    looks |= {name: numbers(looks[name]) for name in ("ends", "low") if name in looks}
    return Layer(kind, numbers(x), numbers(y), colour, label, **looks)


def course(values: "pd.Series[Any]", colour: str, label: str = "", **looks: Any) -> Layer:
    """A measure of the model, or another state that stays, over rounds as steps.

    A model stays as it is until the next round that folds an update. A slope through empty rounds
    would show progress that did not happen.

    Args:
        values: indexed by round; evaluations of empty rounds may be missing.
    """
    every = math.ceil(len(values) / MOST_POINTS)
    kept = values.iloc[::-every].iloc[::-1] if every > 1 else values
    return line("steps", kept.index, kept, colour, label, **looks)


def by_round(
    values: "pd.Series[Any]", colour: str, label: str = "", kind: Kind = "levels", **looks: Any
) -> Layer:
    """A quantity of single rounds as a level over each round, or over the mean of neighbours.

    There is a gap over every round that has no value, for example because it folded no update. A
    slope through such rounds would show values that nobody measured.

    Args:
        values: indexed by round.
        kind: "levels" or "filled".
    """
    first, last = int(values.index.min()), int(values.index.max())
    size = math.ceil((last - first + 1) / MOST_POINTS)
    rounds = np.arange(first, last + 1)
    means = values.astype("float64").reindex(rounds).groupby((rounds - first) // size).mean()
    edges = np.append(np.arange(first, last + 1, size), last + 1) - 0.5
    return line(kind, edges, means, colour, label, **looks)


def bars(rounds: pd.DataFrame, colours: Mapping[str, str]) -> tuple[list[Layer], int]:
    """A bar for each round and column of `rounds`, over each other in the order of `colours`.

    If there are many rounds, a bar is the mean of neighbouring rounds.

    Args:
        rounds: indexed by round; its columns are the keys of `colours`.

    Returns:
        The layers, and the number of rounds for each bar.
    """
    first = rounds.index[0]
    size = math.ceil(len(rounds) / _MOST_BARS)
    means = rounds.groupby(first + (rounds.index - first) // size * size).mean()
    gap = 0.1 if len(rounds) <= _SEPARATE_BARS else 0.0
    begins, ends = means.index - 0.5 + gap, means.index - 0.5 + size - gap
    layers = [
        line("bars", begins, means[column], colour, column if len(colours) > 1 else "", ends=ends)
        for column, colour in colours.items()
    ]
    return layers, size


def round_axis(rounds: "pd.Index[Any] | pd.Series[Any]") -> Axis:
    """The horizontal axis of rounds. A few rounds do not fill it, because a single bar as wide as
    the page would look like a mistake."""
    first, last = int(rounds.min()), int(rounds.max())
    margin = max(0.0, (_FEWEST_SLOTS - (last - first + 1)) / 2)
    return Axis("round", "count", first - 0.5 - margin, last + 0.5 + margin)


def over_rounds(title: str, layers: Sequence[Layer], y: Axis, x: Axis | None = None) -> Chart:
    """A chart whose horizontal axis is the round."""
    return Chart(title, layers, x or Axis("round", "count"), y, over_rounds=True)


def means_of(size: int) -> str:
    """What to add to the unit of bars that are means of rounds."""
    return "" if size == 1 else f" (means of {size} rounds)"


def labelled(axis: Axis, label: str) -> Axis:
    """The same axis with another label."""
    return replace(axis, label=label)


def group_colours(groups: Sequence[str]) -> dict[str, str]:
    """A colour for each group; further groups are muted."""
    more = ["muted"] * max(0, len(groups) - len(COLOURS))
    return dict(zip(map(str, groups), (*COLOURS, *more), strict=False))


def left_out(groups: int) -> list[str]:
    """A sentence on groups that a figure leaves out; none if it shows all of them."""
    return [f"{MOST_PANELS} of {groups} groups are shown."] if groups > MOST_PANELS else []
