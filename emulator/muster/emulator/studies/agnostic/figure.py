"""The figures of the study `agnostic`."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullLocator

from muster.emulator.results.report.style import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    count,
    key_above,
    new_figure,
    say,
    tidy,
)
from muster.emulator.studies.agnostic.fleet import AGNOSTIC, NORMALISED, WEIGHTED
from muster.emulator.studies.claims import BySeed

COLOURS = {AGNOSTIC: BLUE, NORMALISED: GREEN, WEIGHTED: ORANGE}
"""The colours of the rules: Okabe and Ito's, which colour-blind readers can tell apart."""


def draw_courses(courses: Mapping[str, Mapping[str, pd.DataFrame]]) -> Figure:
    """Draw figure 1: the loss over the rounds.

    Args:
        courses: part and rule to the loss by round, with a column for each seed.
    """
    figure = new_figure(3.9)
    for axes, (part, rules) in zip(figure.subplots(1, 2), courses.items(), strict=True):
        ended = {rule: frame for rule, frame in rules.items() if not frame.empty}
        if not ended:
            say(axes, part, "no run ended")
            continue
        ends = [_number(frame.mean(axis=1).iloc[-1]) for frame in ended.values()]
        tidy(axes, f"{part}: ends at {', '.join(ends)}", x="round", y="Σ p f", key=True)
        for rule, frame in ended.items():
            x, mean, colour = frame.index.to_numpy(), frame.mean(axis=1), COLOURS[rule]
            axes.plot(x, mean, color=colour, label=rule, linewidth=1.6, drawstyle="steps-post")
            axes.fill_between(x, frame.min(axis=1), frame.max(axis=1), color=colour, alpha=0.15,
                              linewidth=0, step="post")  # fmt: skip
        axes.set_yscale("log")
        count(axes.xaxis)
        key_above(axes)
    return figure


def draw_differences(differences: Mapping[str, Mapping[float, BySeed]]) -> Figure:
    """Draw figure 2: the difference of equation 10 to agnostic averaging against skew.

    Args:
        differences: part and skew to the difference by seed.
    """
    figure = new_figure(3.6)
    for axes, (part, levels) in zip(figure.subplots(1, 2), differences.items(), strict=True):
        means = _dots(axes, levels)
        tidy(axes, f"{part}: from {_number(means[0])} to {_number(means[-1])}", x="skew ‖p − 1/N‖₁",
             y="loss, equation 10 − agnostic")  # fmt: skip
        axes.axhline(0, color=MUTED, linewidth=0.8)
    return figure


def draw_limits(
    gaps: Mapping[int, BySeed],
    slopes: BySeed,
    measured: Sequence[BySeed],
    others: Sequence[BySeed],
    margin: float,
) -> Figure:
    """Draw the rate of convergence, and the averages of the iterates.

    Args:
        gaps: T to the gap by seed.
        slopes: slope of log gap on log T, by seed.
        measured: for each coordinate, the average of the iterates minus Σ p_i b_i, by seed.
        others: for each coordinate, Σ b_i/N minus Σ p_i b_i, by seed.
        margin: half the side of the square that is drawn as the margin.
    """
    figure = new_figure(3.9)
    left, right = figure.subplots(1, 2)
    means = _dots(left, gaps)
    horizons = np.array(list(gaps))
    promised = means[0] * np.sqrt(horizons[0] / horizons)
    left.plot(horizons, promised, color=MUTED, linestyle="--", linewidth=1.2, label="slope −½")
    left.set(xscale="log", yscale="log")
    left.set_xticks(horizons, [str(horizon) for horizon in horizons])
    left.xaxis.set_minor_locator(NullLocator())
    left.legend(frameon=False, fontsize=9, labelcolor=INK, loc="lower left")
    slope = np.mean(list(slopes.values()))
    tidy(left, f"linear: the gap falls as T to the power {slope:.2f}", x="rounds T", y="gap")
    right.add_patch(Rectangle((-margin, -margin), 2 * margin, 2 * margin, fill=False, color=MUTED))
    for points, colour, marker in ((others, MUTED, "x"), (measured, BLUE, "o")):
        x, y = (list(coordinate.values()) for coordinate in points)
        right.scatter(x, y, color=colour, marker=marker, s=22)
    right.margins(0.15)
    right.set_aspect("equal", adjustable="datalim")
    tidy(right, "quadratics: averages lie at Σ p b", x="first coordinate, less Σ p b",
         y="second coordinate, less Σ p b")  # fmt: skip
    return figure


def _dots(axes: Axes, levels: Mapping[int, BySeed] | Mapping[float, BySeed]) -> list[float]:
    """Draw a dot for each seed and a line through the means; return the means."""
    means = [float(np.mean(list(values.values()))) for values in levels.values()]
    axes.plot(list(levels), means, color=BLUE, linewidth=1.4)
    for level, values in levels.items():
        axes.scatter([level] * len(values), list(values.values()), color=INK, s=9, zorder=3)
    return means


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2g}".replace("-", "−")
