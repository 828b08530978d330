"""The figures of the study `fedplt`."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

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
from muster.studies.claims import BySeed

_COLOURS = (INK, MUTED, "#B5BDC6", BLUE, "#8FBBDC", ORANGE, "#F0B27A", GREEN)


def draw_convergence(
    distances: Mapping[str, pd.DataFrame], floors: Mapping[float, BySeed]
) -> Figure:
    """Draw D over the rounds, and its floor against η.

    Args:
        distances: the name of the rate to D by round, with a column for each seed.
        floors: η to the floor by seed.
    """
    figure = new_figure(4.2)
    left, right = figure.subplots(1, 2)
    for (name, frame), colour in zip(distances.items(), (BLUE, GREEN, ORANGE, INK), strict=True):
        course = frame[frame.index > 0].mean(axis=1)
        left.plot(course.index, course, color=colour, label=name, linewidth=1.4)
    left.set(xscale="log", yscale="log")
    tidy(left, "A floor, or 1/t", x="round", y="D", key=True)
    key_above(left)
    rates = np.array(list(floors))
    means = np.array([np.mean(list(values.values())) for values in floors.values()])
    for rate, values in floors.items():
        right.scatter([rate] * len(values), list(values.values()), color=INK, s=12, zorder=3)
    right.plot(rates, means[0] * rates / rates[0], color=MUTED, linestyle="--", label="slope 1")
    right.set(xscale="log", yscale="log")
    right.set_xticks(rates, [f"{rate:g}" for rate in rates])
    right.minorticks_off()
    ratio = (means[-1] / means[0]) ** (1 / (len(means) - 1))
    tidy(right, f"Twice the step, {ratio:.2f} times the floor", x="η", y="floor of D", key=True)
    key_above(right)
    return figure


def draw_psi(courses: Mapping[str, pd.DataFrame], ends: pd.DataFrame) -> Figure:
    """Draw the loss over the rounds, and the final loss against the bytes up.

    Args:
        courses: what is run to the loss by round, with a column for each seed.
        ends: a row for each of `courses`, in their order, with the columns "loss" and "bytes up".
    """
    figure = new_figure(4.6)
    left, right = figure.subplots(1, 2)
    styles = zip(courses.items(), _COLOURS, ends.itertuples(index=False), strict=False)
    for (name, frame), colour, end in styles:
        mean = frame.mean(axis=1)
        left.plot(frame.index, mean, color=colour, label=name, linewidth=1.4)
        right.scatter([end[3] / 2**20], [end[1]], color=colour, s=40)
    tidy(left, "Without ψ, training is slower", x="round", y="loss", key=True)
    count(left.xaxis)
    left.legend(frameon=False, fontsize=8, labelcolor=INK)
    tidy(right, "With ψ, the same loss for fewer bytes", x="MiB sent by devices", y="final loss")
    right.set_xlim(left=0)
    return figure


def draw_instabilities(parts: Mapping[str, Mapping[str, pd.DataFrame]]) -> Figure:
    """Draw the courses of the parts with instabilities.

    Args:
        parts: part, and what is run, to the measure by round, with a column for each seed.
    """
    figure = new_figure(4.6)
    titles = {
        "overshoot": "Many local steps overshoot",
        "curvature": "Static masks, other curvatures",
        "labels": "Static masks, other labels",
    }
    for axes, (part, runs) in zip(figure.subplots(1, 3), parts.items(), strict=True):
        for (name, frame), colour in zip(runs.items(), (ORANGE, GREEN, BLUE, INK), strict=False):
            share = frame.index.to_numpy() / max(1, frame.index.max())
            axes.plot(share, frame.mean(axis=1), color=colour, label=name, linewidth=1.4)
        if part != "labels":
            axes.set_yscale("log")
        measure = "distance" if part == "curvature" else "loss"
        tidy(axes, titles[part], x="share of the rounds", y=measure, key=True)
        axes.legend(frameon=False, fontsize=7, labelcolor=INK)
    return figure
