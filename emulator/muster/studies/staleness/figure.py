"""The figures of the study `staleness`."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from muster.emulator.report.style import (
    AMBER,
    BLUE,
    GREEN,
    INK,
    LIGHT,
    MUTED,
    ORANGE,
    key,
    new_figure,
    tidy,
)
from muster.studies.staleness.fleet import SHARE
from muster.studies.staleness.measures import ALIKE, APART_PART, CHANGED, PICTURES

_COLOURS = (INK, ORANGE, GREEN, BLUE, AMBER, MUTED, "#CC79A7")
"""One for each method, in the order in which they were run."""

_MOMENTS = 400
_TITLES = {
    ALIKE: "Data alike",
    APART_PART: "Slow devices have other data",
    PICTURES: "Accuracy on pictures",
}


def draw_courses(courses: pd.DataFrame, pictures: bool = False) -> Figure:
    """Draw gaps, or accuracies on pictures, over scenario time, a line for each method.

    Args:
        courses: `StalenessMeasures.courses`.
    """
    parts = [PICTURES] if pictures else [ALIKE, APART_PART]
    figure = new_figure(3.8)
    panels = figure.subplots(1, len(parts), sharey=True, squeeze=False)[0]
    methods = list(courses["method"].unique())
    lines: dict[str, Line2D] = {}
    for axes, part in zip(panels, parts, strict=True):
        rows = courses[courses["part"] == part]
        tidy(axes, _TITLES[part], x="seconds of scenario time",
             y=("" if part == APART_PART else "accuracy" if pictures else "gap"))  # fmt: skip
        for method, colour in zip(methods, _COLOURS, strict=False):
            mine = rows[rows["method"] == method]
            if len(mine):
                lines[method] = _course(axes, mine, method, colour)
        if not pictures:
            axes.set_yscale("log")
        else:
            axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, symbol=" %"))
    key(figure, [lines[method] for method in methods if method in lines])
    return figure


def _course(axes: Axes, rows: pd.DataFrame, method: str, colour: str) -> Line2D:
    """Draw the mean over the seeds, until the first seed ends."""
    seeds = [course for _, course in rows.groupby("seed")]
    moments = np.linspace(0, min(course["seconds"].max() for course in seeds), _MOMENTS)
    values = [_at(course, moments) for course in seeds]
    (line,) = axes.plot(moments, np.mean(values, axis=0), color=colour, linewidth=1.6, label=method)
    return line


def _at(course: pd.DataFrame, moments: np.ndarray) -> np.ndarray:
    """The value of the newest version at each moment."""
    seconds = course["seconds"].to_numpy()
    return course["value"].to_numpy()[np.searchsorted(seconds, moments, side="right") - 1]


def draw_pulls(runs: pd.DataFrame) -> Figure:
    """Draw the pull of the slow devices against their weight, a dot for each run.

    Args:
        runs: `StalenessMeasures.runs`.
    """
    figure = new_figure(4.2)
    axes = figure.subplots()
    tidy(axes, "The limit follows the weight that counts", x="weight of the slow devices",
         y="pull of the slow devices")  # fmt: skip
    top = 1.25 * SHARE
    axes.plot([0, top], [0, top], color=INK, linewidth=1, label="pull = weight")
    rows = runs.dropna(subset=["pull"])
    for method, colour in zip(rows["method"].unique(), _COLOURS, strict=False):
        mine = rows[rows["method"] == method]
        axes.scatter(mine["weight"], mine["pull"], s=18, color=colour, label=method, zorder=3)
    axes.axhline(SHARE, color=MUTED, linewidth=1, linestyle="--", label="share of the population")
    key(figure, axes.get_legend_handles_labels()[0])
    return figure


def draw_biases(runs: pd.DataFrame) -> Figure:
    """Draw the missing pull by method, and by change of the buffered mode.

    Args:
        runs: `StalenessMeasures.runs`.
    """
    figure = new_figure(4.4)
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[2, 3])
    rows = runs.assign(bias=SHARE - runs["pull"]).dropna(subset=["bias"])
    usual = rows[rows["part"] == APART_PART]
    tidy(left, "By method", y=f"missing pull, of {SHARE:g}")
    _bars(left, usual, "method")
    tidy(right, "With one setting changed")
    changed = rows[rows["part"] == CHANGED]
    names = changed["method"].where(changed["method"] != "buffered", "") + " " + changed["change"]
    _bars(right, changed.assign(name=names.str.strip()), "name")
    return figure


def _bars(axes: Axes, rows: pd.DataFrame, by: str) -> None:
    names = list(rows[by].unique())
    means = rows.groupby(by)["bias"].mean().reindex(names)
    axes.bar(range(len(names)), means, 0.6, color=LIGHT)
    axes.scatter([names.index(name) for name in rows[by]], rows["bias"], color=INK, s=10, zorder=3)
    axes.set_xticks(range(len(names)), names, rotation=35, ha="right", rotation_mode="anchor")
