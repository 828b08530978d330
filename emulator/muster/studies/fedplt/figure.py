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
from muster.studies.fedplt.known import Path

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


_STATIC_COLOURS = (BLUE, GREEN, ORANGE, INK)


def draw_static(
    courses: Mapping[str, Mapping[str, pd.DataFrame]], limits: Mapping[str, float]
) -> Figure:
    """Draw the distance to the minimiser over the rounds, and that of the computed limit.

    Args:
        courses: data, and the name of the rate, to the distance by round, a column for each seed.
        limits: data to the distance of the limit.
    """
    figure = new_figure(4.2)
    for axes, (data, runs) in zip(figure.subplots(1, 2), courses.items(), strict=True):
        for (name, frame), colour in zip(runs.items(), _STATIC_COLOURS, strict=True):
            course = frame[frame.index > 0].mean(axis=1)
            axes.plot(course.index, course, color=colour, label=name, linewidth=1.4)
        axes.axhline(limits[data], color=MUTED, linestyle="--", label="the computed limit")
        axes.set(xscale="log", yscale="log")
        tidy(axes, f"{data.capitalize()} data", x="round", y="distance to the minimiser", key=True)
        axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    return figure


def draw_alignment(paths: Mapping[str, Mapping[int, Path]]) -> Figure:
    """Draw ρ_k against the distance to the minimiser.

    Args:
        paths: data, and seed, to the path.
    """
    figure = new_figure(4.2)
    for axes, (data, of) in zip(figure.subplots(1, max(1, len(paths))), paths.items(), strict=True):
        for found in of.values():
            for alignments in found.alignments.T:
                axes.plot(found.distances, alignments, color=BLUE, linewidth=0.5, alpha=0.4)
        axes.axhline(0.0, color=INK, linestyle="--", linewidth=1)
        axes.set_xscale("log")
        axes.set_ylim(-3, 3)
        tidy(axes, f"{data.capitalize()} data", x="distance to the minimiser", y="ρ of a device")
    return figure


def draw_bytes(ends: pd.DataFrame) -> Figure:
    """Draw the final accuracy against the bytes that devices sent.

    Args:
        ends: the columns "devices train", "data", "rate", "accuracy" and "bytes up".
    """
    figure = new_figure(4.6)
    colours = (INK, ORANGE, BLUE, GREEN, "#F0B27A", "#8FBBDC", MUTED)
    named = dict(zip(ends["devices train"].unique(), colours, strict=False))
    for axes, (data, rows) in zip(
        figure.subplots(1, 2), ends.groupby("data", sort=False), strict=False
    ):
        for trains, rate, accuracy, sent in rows[
            ["devices train", "rate", "accuracy", "bytes up"]
        ].itertuples(index=False):
            colour, damped = named[trains], rate < 1 or not str(trains).startswith("¼")
            face = colour if damped else "none"
            label = str(trains) if damped else None
            axes.scatter([sent / 2**20], [accuracy], s=45, facecolor=face, edgecolor=colour,
                         label=label)  # fmt: skip
        tidy(axes, f"{str(data).capitalize()} data", x="MiB sent", y="accuracy", key=True)
        axes.legend(frameon=False, fontsize=7, labelcolor=INK, loc="lower right")
        axes.set_xlim(left=0)
    return figure
