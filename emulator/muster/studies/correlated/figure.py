"""The figures of the study `correlated`.

A line is the mean over the seeds, and its band is one standard deviation.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from muster.emulator.report.style import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    count,
    key_above,
    new_figure,
    tidy,
)

COLOURS = {"unbiased": INK, "biased": ORANGE, "debiased": BLUE, "exact": GREEN}
"""The colours of the schemes: Okabe and Ito's, which colour-blind readers can tell apart."""
NAMES = {"exact": "debiased by the exact c"}

Courses = Mapping[str, pd.DataFrame]
"""Scheme to a table that is indexed by round and has a column for each seed."""

_LEAST = 1e-4
"""The lower end of a band on a logarithmic scale."""


def draw_losses(courses: Courses, by_digit: Courses) -> Figure:
    """Draw figure 1: training loss over the rounds, and the final loss of each digit.

    Args:
        by_digit: scheme to the final losses, indexed by digit, with a column for each seed.
    """
    figure = new_figure(4.2)
    left, right = figure.subplots(1, 2, width_ratios=[2, 1])
    ends = ", ".join(
        f"{scheme} at {_end(frame):.2g}"
        for scheme, frame in courses.items()
        if scheme != "exact" and not frame.empty
    )
    _losses(left, f"Ends: {ends}", courses)
    tidy(right, "Final loss by digit", x="digit", y="final loss", key=True)
    drawn = {scheme: frame for scheme, frame in by_digit.items() if not frame.empty}
    for place, (scheme, frame) in enumerate(drawn.items()):
        at = np.arange(len(frame)) + 0.16 * (place - (len(drawn) - 1) / 2)
        _dots(right, at, frame, COLOURS[scheme])
    right.set_xticks(range(3))
    right.set_ylim(bottom=0)
    return figure


def draw_limits(panels: Mapping[str, Courses]) -> Figure:
    """Draw figure 2: training loss over the rounds, with a panel for each limit, by its name."""
    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = new_figure(0.6 + 3.2 * rows)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat
    for axes, (title, courses) in zip(grid, panels.items(), strict=False):
        _losses(axes, title, courses)
        axes.label_outer()
    for axes in list(grid)[len(panels) :]:
        axes.set_axis_off()
    return figure


def draw_surrogate(
    points: Mapping[str, Mapping[str, Sequence[Sequence[float]]]],
    limits: Mapping[str, Mapping[str, Sequence[float]]],
    distances: Courses,
    gap: float,
) -> Figure:
    """Draw the end points of the quadratic surrogate, and its distance to the fair optimum.

    Args:
        points: name of the limit ("unlimited", …) and scheme to each seed's weights of the three
            groups.
        limits: name of the limit and scheme to the expected end point.
        distances: distances to the fair optimum over the rounds.
        gap: the expected final distance of the biased scheme.
    """
    figure = new_figure(4.4)
    left, right = figure.subplots(1, 2)
    _triangle(left, points, limits)
    tidy(right, "Distance to the fair optimum", x="round", y="distance", key=True)
    for scheme, frame in distances.items():
        if not frame.empty:
            _band(right, frame.loc[frame.index > 0], scheme, least=0.0)
    right.axhline(gap, color=MUTED, linewidth=1, linestyle="--",
                  label=f"expected end of biased, from exact c: {gap:.3f}")  # fmt: skip
    right.set(xscale="log", ylim=(0, None))
    key_above(right)
    return figure


def _losses(axes: Axes, title: str, courses: Courses) -> None:
    tidy(axes, title, x="round", y="training loss", key=True)
    for scheme, frame in courses.items():
        if not frame.empty:
            _band(axes, frame, scheme)
    axes.set_yscale("log")
    count(axes.xaxis, 6)
    key_above(axes)


def _band(axes: Axes, frame: pd.DataFrame, scheme: str, least: float = _LEAST) -> None:
    mean, sd = frame.mean(axis=1), _sd(frame)
    dashed = "--" if scheme == "exact" else "-"
    axes.plot(frame.index, mean, color=COLOURS[scheme], linewidth=1.6, linestyle=dashed,
              drawstyle="steps-post", label=NAMES.get(scheme, scheme))  # fmt: skip
    axes.fill_between(frame.index, (mean - sd).clip(lower=least), mean + sd, linewidth=0,
                      color=COLOURS[scheme], alpha=0.15, step="post")  # fmt: skip


def _dots(axes: Axes, at: np.ndarray, frame: pd.DataFrame, colour: str) -> None:
    """Draw a dot for each seed, and the mean with its standard deviation."""
    for seed in frame:
        axes.scatter(at, frame[seed], color=colour, s=8, alpha=0.4, linewidths=0)
    axes.errorbar(at, frame.mean(axis=1), _sd(frame), fmt="_", color=colour, markersize=11,
                  markeredgewidth=2, elinewidth=1)  # fmt: skip


def _sd(frame: pd.DataFrame) -> pd.Series:
    return frame.std(axis=1).fillna(0.0)


def _end(frame: pd.DataFrame) -> float:
    return float(frame.iloc[-1].mean())


def _triangle(
    axes: Axes,
    points: Mapping[str, Mapping[str, Sequence[Sequence[float]]]],
    limits: Mapping[str, Mapping[str, Sequence[float]]],
) -> None:
    """Draw the end points in the triangle whose corners are the groups' minimisers."""
    tidy(axes, "End points between the groups' minimisers", key=True)
    axes.set_axis_off()
    corners = _flat(np.eye(3))
    axes.fill(*corners.T, facecolor="none", edgecolor=MUTED, linewidth=1)
    for number, (corner, up) in enumerate(zip(corners, ("top", "bottom", "top"), strict=True)):
        axes.annotate(f"group {number}", corner, ha="center", va=up, color=MUTED, fontsize=9)
    handles = []
    for place, (name, schemes) in enumerate(points.items()):
        marker = "o^sD"[place % 4]
        for scheme, found in schemes.items():
            if len(found):
                axes.scatter(*_xy(found), color=COLOURS[scheme], marker=marker, s=20,
                             alpha=0.55, linewidths=0, zorder=3)  # fmt: skip
                label = NAMES.get(scheme, scheme) + (f", {name}" if place else "")
                handles.append(Line2D([], [], color=COLOURS[scheme], marker=marker, linestyle="",
                                      markersize=5, label=label))  # fmt: skip
    expected = np.unique([end for ends in limits.values() for end in ends.values()], axis=0)
    axes.scatter(*_xy(expected), color=INK, marker="+", s=70, linewidths=1, zorder=4)
    handles.append(
        Line2D([], [], color=INK, marker="+", linestyle="", label="expected, from exact c")
    )
    axes.set_aspect("equal")
    # There is room beside the apex.
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(-0.05, 1), frameon=False,
                fontsize=8.5, labelcolor=INK, handletextpad=0.3)  # fmt: skip


def _xy(weights: Sequence[Sequence[float]] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x, y = _flat(np.asarray(weights)).T
    return x, y


def _flat(weights: np.ndarray) -> np.ndarray:
    """Orthogonal coordinates in the plane of weights whose sum is 1, which preserve distances."""
    w0, w1, w2 = weights.T
    return np.stack([(w2 - w0) / math.sqrt(2), (2 * w1 - w0 - w2) / math.sqrt(6)], axis=-1)
