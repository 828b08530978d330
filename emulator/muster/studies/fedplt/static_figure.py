"""The figures of the study `fedplt` on static masks."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from muster.emulator.report.style import BLUE, GREEN, INK, MUTED, ORANGE, new_figure, tidy
from muster.studies.fedplt.known import Path

_COLOURS = (BLUE, GREEN, ORANGE, INK)


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
        for (name, frame), colour in zip(runs.items(), _COLOURS, strict=True):
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
