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
    BINDING,
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
_DELTA_LINES = {PRINTED: ("as printed", BLUE), BINDING: ("binding thresholds", ORANGE)}
_GAPS_OF_PAPER = {0.01: 0.0020, 0.5: 0.0248, 1.0: 0.0277, 10.0: 0.0119, 100.0: 0.0031}
"""Table 8 of the paper, column Mean, read as percent of accuracy."""
_SHARES_OF_PAPER = {0.01: 0.30, 1.0: 0.54, 1000.0: 0.49}
"""What section 4.1 of the paper says about figure 2."""
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
    """Draw the Jensen gap and participation over δ, and the paper's numbers.

    Args:
        runs: `UtilityMeasures.runs`.
    """
    figure = new_figure(3.4)
    left, right = figure.subplots(1, 2)
    rows = runs[runs["part"] == DELTA].copy()
    rows["delta"] = rows["change"].str.removeprefix("δ = ").astype(float)
    tidy(left, "Jensen gap of all institutes", x="δ")
    tidy(right, "Institutes that accept", x="δ")
    for test, (name, colour) in _DELTA_LINES.items():
        of_test = rows[rows["test"] == test]
        _levels(left, of_test, "jensen gap", name, colour)
        _levels(right, of_test, "participation", name, colour)
    for axes, numbers in ((left, _GAPS_OF_PAPER), (right, _SHARES_OF_PAPER)):
        axes.plot(list(numbers), list(numbers.values()), "x", color=MUTED, label="the paper")
        axes.set_ylim(bottom=0)  # after all lines, because it also fixes the top
    right.set_ylim(0, 1.02)
    right.yaxis.set_major_formatter(PercentFormatter(xmax=1, symbol=" %"))
    key(figure, right.get_legend_handles_labels()[0])
    return figure


def _levels(axes: Axes, rows: pd.DataFrame, measure: str, name: str, colour: str) -> None:
    """Draw the means over the seeds as a line, and the seeds as dots."""
    means = rows.groupby("delta")[measure].mean()
    axes.plot(means, color=colour, linewidth=1.6, label=name)
    axes.scatter(rows["delta"], rows[measure], color=colour, s=10, zorder=3)
    axes.set_xscale("log")


def draw_discrepancies(rows: pd.DataFrame) -> Figure:
    """Draw ‖α − 1/N‖² and its bound over the rounds, as printed and with binding thresholds.

    Args:
        rows: `UtilityMeasures.discrepancies`.
    """
    figure = new_figure(3.4)
    panels = figure.subplots(1, 2, sharey=True)
    bound = (rows["part"] == DELTA) & (rows["test"] == BINDING)
    binding = bound & (rows["change"] == delta_of(1.0))
    printed = (rows["part"] == AS_PRINTED) & (rows["change"] == "")
    names = ("As printed", "With binding thresholds, δ = 1")
    for axes, name, which in zip(panels, names, (printed, binding), strict=True):
        tidy(axes, name, x="round", y="‖α − 1/N‖²" if axes is panels[0] else "")
        means = rows[which].groupby("round")[["discrepancy", "bound"]].mean()
        axes.plot(means["bound"], color=MUTED, linewidth=1.2, linestyle=DASHES, label="bound")
        axes.plot(means["discrepancy"], color=BLUE, linewidth=1.6, label="measured")
        count(axes.xaxis)
    panels[0].set_ylim(bottom=0)
    key(figure, panels[0].get_legend_handles_labels()[0])
    return figure
