"""The figure of a comparison: how well each variant did, by round and by bytes.

A line is the mean over a variant's seeds, as far as all of them went; the band reaches from the
lowest to the highest. Beyond, where only some seeds went on, each has a thin line of its own.
"""

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from muster.common.files import write_atomic
from muster.emulator.results.report import style
from muster.emulator.results.summary import bytes_text, number_text, percent_text

# Okabe and Ito's colours, which colour-blind readers tell apart; then the same again, dashed.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#1f2933")
_DASHES = ("-", (0, (4, 2)), (0, (1, 1.5)))
_KEY_COLUMNS, _LONGEST = 3, 34


@dataclass(frozen=True, slots=True)
class Band:
    """A variant's course.

    Attributes:
        values: indexed by round, one column per seed; NaN after a run's last round.
        sent: bytes until then, of the same shape.
    """

    variant: str
    values: pd.DataFrame
    sent: pd.DataFrame

    @property
    def common(self) -> pd.Index:
        """The rounds that all seeds reached."""
        return self.values.dropna().index

    @property
    def end(self) -> float:
        """Mean over the seeds of where each ended, as in the tables."""
        return float(self.values.ffill().iloc[-1].mean())


def write_figure(path: Path, courses: pd.DataFrame) -> None:
    """Draw the courses (variant, seed, round, loss, accuracy, bytes) into a PNG file."""
    png = io.BytesIO()
    draw(courses).savefig(png, format="png")
    write_atomic(path, png.getvalue())


def draw(courses: pd.DataFrame) -> Figure:
    """Accuracy, or loss where the task has none, against rounds and against bytes."""
    measure = "accuracy" if courses["accuracy"].notna().any() else "loss"
    bands = [band for band in _bands(courses, measure) if len(band.common)]
    figure = style.new_figure(4.0)
    if not bands:
        style.say(figure.subplots(), "No evaluation", "No run evaluated a model.")
        return figure
    by_round, by_bytes = figure.subplots(1, 2, sharey=True)
    size, unit = _unit(max(np.nanmax(band.sent.to_numpy(float)) for band in bands))
    for number, band in enumerate(bands):
        _draw_band(by_round, number, band, pd.DataFrame(dict.fromkeys(band.sent, band.sent.index),
                                                        index=band.sent.index))  # fmt: skip
        _draw_band(by_bytes, number, band, band.sent / size)
    style.tidy(by_round, _end_finding(bands, measure), "round", measure)
    style.tidy(by_bytes, _bytes_finding(bands, measure), f"{unit} up and down since the start")
    style.count(by_round.xaxis)
    _scale(by_round, bands, measure)
    handles, _ = by_round.get_legend_handles_labels()
    if any(len(band.values.columns) > 1 for band in bands):
        handles.append(Patch(color=style.MUTED, alpha=0.25, label="lowest to highest seed"))
    figure.legend(
        handles=handles, loc="outside upper left", ncols=_KEY_COLUMNS, frameon=False, fontsize=9,
        handlelength=1.6, columnspacing=1.6, labelcolor=style.INK,
    )  # fmt: skip
    return figure


def _bands(courses: pd.DataFrame, measure: str) -> list[Band]:
    bands = []
    for variant, course in courses.groupby("variant", sort=False):
        values = course.pivot(index="round", columns="seed", values=measure)
        sent = course.pivot(index="round", columns="seed", values="bytes")
        # A round that one seed did not evaluate left the model as it was: an empty round.
        inside = values.bfill().notna()
        bands.append(Band(str(variant), values.ffill()[inside], sent.ffill()[inside]))
    return bands


def _draw_band(axes: Axes, number: int, band: Band, x: pd.DataFrame) -> None:
    colour = _COLOURS[number % len(_COLOURS)]
    dash = _DASHES[number // len(_COLOURS) % len(_DASHES)]
    values, at = band.values.loc[band.common], x.loc[band.common].mean(axis="columns")
    label = _named(band.variant, _LONGEST)
    axes.fill_between(at, values.min(axis="columns"), values.max(axis="columns"), color=colour,
                      alpha=0.15, linewidth=0, step="post")  # fmt: skip
    mean = values.mean(axis="columns")
    axes.plot(at, mean, color=colour, linestyle=dash, linewidth=1.8, label=label,
              drawstyle="steps-post")  # fmt: skip
    axes.plot(at.iloc[-1], mean.iloc[-1], "o", color=colour, markersize=5, clip_on=False)
    for seed in band.values:
        alone = band.values[seed].loc[band.common[-1] :].dropna()
        if len(alone) > 1:
            axes.plot(x[seed].loc[alone.index], alone, "-o", color=colour, linewidth=0.8,
                      alpha=0.6, markersize=3.5, markevery=[-1],
                      drawstyle="steps-post")  # fmt: skip


def _scale(axes: Axes, bands: list[Band], measure: str) -> None:
    low = min(np.nanmin(band.values.to_numpy(float)) for band in bands)
    high = max(np.nanmax(band.values.to_numpy(float)) for band in bands)
    if measure == "accuracy":
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, symbol=" %"))
    elif low > 0 and high > 100 * low:
        axes.set_yscale("log")


def _end_finding(bands: list[Band], measure: str) -> str:
    name, value = _best({band.variant: band.end for band in bands}, measure)
    return f"{name} ended best, at {value}"


def _bytes_finding(bands: list[Band], measure: str) -> str:
    """Who was ahead with the bytes that every variant has spent."""
    spent = {band.variant: band.sent.loc[band.common].mean(axis="columns") for band in bands}
    budget = min(float(sent.iloc[-1]) for sent in spent.values())
    then = {
        band.variant: float(np.interp(budget, spent[band.variant], _mean(band))) for band in bands
    }
    name, value = _best(then, measure)
    return f"Best for {bytes_text(budget)}: {name}, at {value}"


def _mean(band: Band) -> pd.Series:
    return band.values.loc[band.common].mean(axis="columns")


def _best(values: dict[str, float], measure: str) -> tuple[str, str]:
    variant = (max if measure == "accuracy" else min)(values, key=lambda name: values[name])
    text = percent_text if measure == "accuracy" else number_text
    return _named(variant, 22), text(values[variant])


def _named(variant: str, longest: int) -> str:
    """A variant's name for titles and keys; "$x$" is no formula there."""
    return style.drawable(variant, longest).replace("$", r"\$")


def _unit(most: float) -> tuple[float, str]:
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if most >= 1024**power:
            return 1024.0**power, unit
    return 1.0, "bytes"
