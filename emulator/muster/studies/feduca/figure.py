"""The figures of the study `feduca`."""

from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from muster.emulator.report.style import (
    AMBER,
    BLUE,
    DASHES,
    GREEN,
    INK,
    LIGHT,
    MUTED,
    ORANGE,
    count,
    key,
    new_figure,
    tidy,
)
from muster.studies.feduca.claims import AS_PRINTED, DELTA, SAME_TEST, delta_of
from muster.studies.feduca.fleet import (
    AAGGFF,
    ALWAYS,
    COIN,
    EQUATION_1,
    FEDAVG,
    FEDPROX,
    FEDUCA,
    INCFL,
    PRINTED,
    WARM_START,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist

_PRINTED_LINES = {
    (AS_PRINTED, FEDUCA, PRINTED): (FEDUCA, BLUE),
    (AS_PRINTED, WARM_START, EQUATION_1): (WARM_START, GREEN),
    (AS_PRINTED, FEDAVG, EQUATION_1): (FEDAVG, INK),
    (AS_PRINTED, FEDPROX, EQUATION_1): (FEDPROX, MUTED),
    (AS_PRINTED, INCFL, EQUATION_1): (INCFL, ORANGE),
    (AS_PRINTED, AAGGFF, EQUATION_1): (AAGGFF, AMBER),
}
_SAME_LINES = {
    (AS_PRINTED, FEDUCA, PRINTED): (f"{FEDUCA}, printed rule", BLUE),
    (SAME_TEST, FEDUCA, EQUATION_1): (f"{FEDUCA}, eq. 1", LIGHT),
    (SAME_TEST, FEDAVG, EQUATION_1): (f"{FEDAVG}, eq. 1", INK),
    (SAME_TEST, FEDAVG, PRINTED): (f"{FEDAVG}, printed rule", GREEN),
    (SAME_TEST, FEDAVG, COIN): (f"{FEDAVG}, a coin", ORANGE),
    (SAME_TEST, FEDAVG, ALWAYS): (f"{FEDAVG}, everybody", AMBER),
}
_SMOOTH = 5
"""Rounds of the moving mean in the figure of participation."""


def draw_courses(courses: pd.DataFrame, same: bool = False) -> Figure:
    """Draw participation and accuracy over the rounds, in means over the seeds.

    Args:
        courses: `UtilityMeasures.courses`.
        same: draw the comparison under the same test, not the one as printed.
    """
    figure = new_figure(3.9)
    left, right = figure.subplots(1, 2)
    tidy(left, "Institutes that accept", x="round")
    tidy(right, "Accuracy of the model", x="round")
    lines: dict[str, Artist] = {}
    for (part, method, test), (name, colour) in (_SAME_LINES if same else _PRINTED_LINES).items():
        rows = courses[
            (courses["part"] == part)
            & (courses["method"] == method)
            & (courses["test"] == test)
            & (courses["change"] == "")
        ]
        if len(rows):
            means = rows.groupby("round")[["participation", "accuracy"]].mean()
            smooth = means["participation"].rolling(_SMOOTH, center=True, min_periods=1).mean()
            looks = {"color": colour, "linestyle": DASHES if test == ALWAYS else "-"}
            (lines[name],) = left.plot(smooth, linewidth=1.6, label=name, **looks)
            right.plot(means["accuracy"], linewidth=1.6, **looks)
    for axes in (left, right):
        count(axes.xaxis)
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, symbol=" %"))
    key(figure, list(lines.values()))
    return figure


def draw_deltas(runs: pd.DataFrame) -> Figure:
    """Draw the Jensen gap and participation over δ, with binding thresholds.

    Args:
        runs: `UtilityMeasures.runs`.
    """
    figure = new_figure(3.4)
    left, right = figure.subplots(1, 2)
    rows = runs[runs["part"] == DELTA].copy()
    rows["delta"] = rows["change"].str.removeprefix("δ = ").astype(float)
    tidy(left, "Jensen gap of all institutes", x="δ")
    tidy(right, "Institutes that accept", x="δ")
    _levels(left, rows, "jensen gap")
    _levels(right, rows, "participation")
    right.set_ylim(0, 1.02)
    right.yaxis.set_major_formatter(PercentFormatter(xmax=1, symbol=" %"))
    return figure


def _levels(axes: Axes, rows: pd.DataFrame, measure: str) -> None:
    """Draw the means over the seeds as a line, and the seeds as dots."""
    means = rows.groupby("delta")[measure].mean()
    axes.plot(means, color=BLUE, linewidth=1.6)
    axes.scatter(rows["delta"], rows[measure], color=INK, s=10, zorder=3)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)


def draw_discrepancies(rows: pd.DataFrame) -> Figure:
    """Draw ‖α − 1/N‖² and its bound over the rounds, as printed and with binding thresholds.

    Args:
        rows: `UtilityMeasures.discrepancies`.
    """
    figure = new_figure(3.4)
    panels = figure.subplots(1, 2, sharey=True)
    binding = (rows["part"] == DELTA) & (rows["change"] == delta_of(1.0))
    printed = (rows["part"] == AS_PRINTED) & (rows["change"] == "")
    names = ("As printed", "With binding thresholds, δ = 1")
    for axes, name, which in zip(panels, names, (printed, binding), strict=True):
        tidy(axes, name, x="round", y="‖α − 1/N‖²" if axes is panels[0] else "")
        means = rows[which].groupby("round")[["discrepancy", "bound"]].mean()
        axes.plot(means["bound"], color=MUTED, linewidth=1.2, linestyle=DASHES, label="bound")
        axes.plot(means["discrepancy"], color=BLUE, linewidth=1.6, label="measured")
        axes.set_ylim(bottom=0)
        count(axes.xaxis)
    key(figure, panels[0].get_legend_handles_labels()[0])
    return figure
