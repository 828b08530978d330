"""The figure of a comparison: the accuracy or loss of each variant, by round and by bytes.

A thick line is the mean over a variant's seeds, up to the last round that all of them reached. Its
band is the 95 % confidence interval of that mean, as in the tables. After that round, each seed
that went on has a thin line of its own.

A title names a best variant only if the tables support it: the interval of its difference to every
other variant, between runs of the same seed, excludes 0.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from muster.common.files import write_atomic
from muster.emulator.results.intervals import interval
from muster.emulator.results.report import style
from muster.emulator.results.report.names import drawable
from muster.emulator.results.summary import bytes_text, number_text, percent_text

# Okabe and Ito's colours, which colour-blind readers tell apart; then the same again, dashed.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#1f2933")
_DASHES = ("-", (0, (4, 2)), (0, (1, 1.5)))
_KEY_COLUMNS, _LONGEST = 3, 34
_ROOM, _ROOM_FACTOR = 0.15, 1.5
"""Room above and below the values, as a share of their range; on a logarithmic scale a factor."""


@dataclass(frozen=True, slots=True)
class Band:
    """The accuracy or loss of a variant over the rounds.

    Attributes:
        values: indexed by round, one column per seed; NaN after a run's last round.
        sent: bytes sent until that round, of the same shape.
    """

    variant: str
    values: pd.DataFrame
    sent: pd.DataFrame

    @property
    def common(self) -> pd.Index:
        """The rounds that all seeds reached."""
        return self.values.dropna().index

    @property
    def ends(self) -> pd.Series:
        """The last value of each seed, as in the tables."""
        return self.values.ffill().iloc[-1]

    def after_bytes(self, budget: float) -> pd.Series:
        """The value of each seed when it had sent `budget` bytes: that of its last evaluation until
        then, or of its first if it had sent more by that time."""
        found = {}
        for seed in self.values:
            values = self.values[seed].dropna()
            sent = self.sent[seed].loc[values.index].to_numpy(float)
            place = int(np.searchsorted(sent, budget, side="right")) - 1
            found[seed] = values.iloc[max(place, 0)]
        return pd.Series(found, dtype="float64")


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
        label = "95 % confidence interval of the mean"
        handles.append(Patch(color=style.MUTED, alpha=0.25, label=label))
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
    mean = values.mean(axis="columns")
    half = values.apply(lambda seeds: interval(seeds).half, axis="columns")
    axes.fill_between(at, mean - half, mean + half, color=colour, alpha=0.15, linewidth=0,
                      step="post")  # fmt: skip
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
    """Scale the vertical axis to the seeds' values: intervals of two seeds may be far wider."""
    values = np.concatenate([band.values.to_numpy(float).ravel() for band in bands])
    values = values[np.isfinite(values)]
    low, high = (values.min(), values.max()) if len(values) else (0.0, 0.0)
    logarithmic = measure == "loss" and low > 0 and high > 100 * low
    if measure == "accuracy":
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, symbol=" %"))
    if logarithmic:
        axes.set_yscale("log")
        axes.set_ylim(low / _ROOM_FACTOR, high * _ROOM_FACTOR)
    elif low < high:
        room = _ROOM * (high - low)
        axes.set_ylim(low - room, high + room)


def _end_finding(bands: list[Band], measure: str) -> str:
    ends = {band.variant: band.ends for band in bands}
    if len(bands) == 1:
        return f"{_named(bands[0].variant, 22)} ended at {_mean_text(bands[0].ends, measure)}"
    best = _best(ends, measure)
    if best is None:
        return "No variant ended clearly best"
    return f"{_named(best, 22)} ended best, at {_mean_text(ends[best], measure)}"


def _bytes_finding(bands: list[Band], measure: str) -> str:
    """Which variant was best when each had sent as many bytes as the thriftiest sent in all."""
    spent = [band.sent.loc[band.common[-1]].mean() for band in bands]
    budget = float(min(spent))
    after = {band.variant: band.after_bytes(budget) for band in bands}
    if len(bands) == 1:
        return f"After {bytes_text(budget)}: {_mean_text(bands[0].after_bytes(budget), measure)}"
    best = _best(after, measure)
    if best is None:
        return f"For {bytes_text(budget)}, no variant is clearly best"
    value = _mean_text(after[best], measure)
    return f"Best for {bytes_text(budget)}: {_named(best, 22)}, at {value}"


def _best(values: Mapping[str, pd.Series], measure: str) -> str | None:
    """The variant that is better than every other one; None if there is no such variant.

    One variant is better than another if the confidence interval of their difference, between runs
    of the same seed, excludes 0. This is the interval of the tables. One seed has no interval.

    Args:
        values: variant to its value with each seed.
    """
    sign = 1 if measure == "accuracy" else -1
    for variant, own in values.items():
        apart = (
            interval(sign * (own - others)) for name, others in values.items() if name != variant
        )
        if all(difference.mean - difference.half > 0 for difference in apart):
            return variant
    return None


def _mean_text(values: pd.Series, measure: str) -> str:
    text = percent_text if measure == "accuracy" else number_text
    return text(interval(values).mean)


def _named(variant: str, longest: int) -> str:
    """A variant's name for titles and legends, where "$x$" must not be read as a formula."""
    return drawable(variant, longest).replace("$", r"\$")


def _unit(most: float) -> tuple[float, str]:
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if most >= 1024**power:
            return 1024.0**power, unit
    return 1.0, "bytes"
