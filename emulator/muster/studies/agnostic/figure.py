"""The figures of the study `agnostic`."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from muster.common.seeds import FloatArray
from muster.emulator.report.style import (
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
from muster.studies.agnostic.fleet import AGNOSTIC, NORMALISED, WEIGHTED
from muster.studies.agnostic.known import FAR
from muster.studies.claims import BySeed

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


def draw_differences(
    differences: Mapping[str, Mapping[str, Mapping[float, BySeed]]],
) -> Figure:
    """Draw figure 2: the differences of other rules to agnostic averaging against skew.

    Args:
        differences: rule, part and skew to the difference by seed.
    """
    figure = new_figure(6.2)
    grid = figure.subplots(len(differences), 2, squeeze=False)
    for row, (rule, parts) in zip(grid, differences.items(), strict=True):
        for axes, (part, levels) in zip(row, parts.items(), strict=True):
            means = _dots(axes, levels, COLOURS[rule])
            tidy(axes, f"{part}, {rule}: up to {_number(max(means))}",
                 x="skew ‖p − 1/N‖₁", y="loss above agnostic")  # fmt: skip
            axes.axhline(0, color=MUTED, linewidth=0.8)
    return figure


def draw_rates(gaps: Mapping[str, Mapping[int, BySeed]], slopes: Mapping[str, BySeed]) -> Figure:
    """Draw the rate of convergence with each loss.

    Args:
        gaps: loss and T to the gap by seed.
        slopes: loss to the slope of log gap on log T, by seed.
    """
    figure = new_figure(3.9)
    for axes, (loss, of_loss) in zip(figure.subplots(1, 2), gaps.items(), strict=True):
        means = _dots(axes, of_loss)
        horizons = np.array(list(of_loss))
        promised = means[0] * np.sqrt(horizons[0] / horizons)
        axes.plot(horizons, promised, color=MUTED, linestyle="--", linewidth=1.2, label="slope −½")
        axes.set(xscale="log", yscale="log")
        axes.set_xticks(horizons, [str(horizon) for horizon in horizons])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.legend(frameon=False, fontsize=9, labelcolor=INK, loc="lower left")
        slope = f"{np.mean(list(slopes[loss].values())):.2f}".replace("-", "−")
        tidy(axes, f"{loss} loss: slope {slope}", x="rounds T", y="gap")
    return figure


_MARKS = (("o", BLUE), ("x", MUTED), ("s", ORANGE), ("^", GREEN))


def draw_limits(places: Mapping[str, Mapping[str, Sequence[FloatArray]]]) -> Figure:
    """Draw where the averages of the iterates lie.

    Args:
        places: part and name to points minus Σ p_i b_i, each of shape (2,); the first name is that
            of the averages. `FAR` is left out, because it is far from all others.
    """
    figure = new_figure(3.9)
    for axes, (part, kinds) in zip(figure.subplots(1, 2), places.items(), strict=True):
        for (name, points), (marker, colour) in zip(kinds.items(), _MARKS, strict=True):
            if points and name != FAR:
                axes.scatter(*np.array(points).T, color=colour, marker=marker, s=22, label=name)
        axes.axvline(0, color=MUTED, linewidth=0.8)
        axes.axhline(0, color=MUTED, linewidth=0.8)
        axes.set_aspect("equal", adjustable="datalim")
        axes.margins(0.15)
        tidy(axes, f"{part}: averages lie at Σ p b", x="first coordinate, less Σ p b",
             y="second coordinate, less Σ p b")  # fmt: skip
        axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    return figure


def _dots(
    axes: Axes, levels: Mapping[int, BySeed] | Mapping[float, BySeed], colour: str = BLUE
) -> list[float]:
    """Draw a dot for each seed and a line through the means; return the means."""
    means = [float(np.mean(list(values.values()))) for values in levels.values()]
    axes.plot(list(levels), means, color=colour, linewidth=1.4)
    for level, values in levels.items():
        axes.scatter([level] * len(values), list(values.values()), color=INK, s=9, zorder=3)
    return means


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2g}".replace("-", "−")
