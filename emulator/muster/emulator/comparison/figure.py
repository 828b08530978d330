"""The figure of a comparison: the accuracy or loss of each variant, by round, by scenario time and
by bytes.

A thick line is the mean over a variant's seeds, up to the last round that all of them reached. Its
band is the 95 % confidence interval of that mean, as in the tables, as far as such values are
possible. After that round, each seed that went on has a thin line of its own. A dotted line is the
scenario's target.

A title names a best variant only if the tables support it: the interval of its difference to every
other variant, between runs of the same seed, excludes 0.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from muster.emulator.records.intervals import interval
from muster.emulator.records.summary import bytes_text, number_text, percent_text, seconds_text
from muster.emulator.report import style
from muster.emulator.report.figure_files import save_figure, save_lines
from muster.emulator.report.names import drawable

# Okabe and Ito's colours, which colour-blind readers tell apart; then the same again, dashed.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#1f2933")
_DASHES = ("-", (0, (4, 2)), (0, (1, 1.5)))
_KEY_COLUMNS, _LONGEST = 3, 34
_ROOM, _ROOM_FACTOR = 0.15, 1.5
"""Room above and below the values, as a share of their range; on a logarithmic scale a factor."""


@dataclass(frozen=True, slots=True)
class Cost:
    """A cost of which variants may have the same amount.

    Attributes:
        column: its column in the courses, counted from the start of the run.
        text: an amount, for titles.
        units: units with their sizes, the largest first, for the axis.
    """

    column: str
    label: str
    text: Callable[[float], str]
    units: Sequence[tuple[float, str]]

    def unit(self, most: float) -> tuple[float, str]:
        return next((each for each in self.units if most >= each[0]), self.units[-1])


COSTS = (
    Cost("scenario_s", "of scenario time", seconds_text,
         ((86_400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))),
    Cost("bytes", "up and down since the start", bytes_text,
         ((1024.0**3, "GiB"), (1024.0**2, "MiB"), (1024.0, "KiB"), (1.0, "bytes"))),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Band:
    """The accuracy or loss of a variant over the rounds.

    Attributes:
        values: indexed by round, one column per seed; NaN after a run's last round.
        spent: for the column of each cost, the amount until that round, of the same shape.
    """

    variant: str
    values: pd.DataFrame
    spent: Mapping[str, pd.DataFrame]

    @property
    def common(self) -> pd.Index:
        """The rounds that all seeds reached."""
        return self.values.dropna().index

    @property
    def ends(self) -> pd.Series:
        """The last value of each seed, as in the tables."""
        return self.values.ffill().iloc[-1]

    def after(self, cost: Cost, budget: float) -> pd.Series:
        """The value of each seed when it had spent `budget`: that of its last evaluation until
        then, or of its first if it had spent more by that time."""
        found = {}
        for seed in self.values:
            values = self.values[seed].dropna()
            spent = self.spent[cost.column][seed].loc[values.index].to_numpy(float)
            place = int(np.searchsorted(spent, budget, side="right")) - 1
            found[seed] = values.iloc[max(place, 0)]
        return pd.Series(found, dtype="float64")


def write_figure(
    folder: Path, courses: pd.DataFrame, targets: Mapping[str, Sequence[float]], kind: str = "png"
) -> None:
    """Draw comparison.png, and the same as svg or pdf if that is the kind.

    Args:
        courses, targets: as for `draw`.
    """
    figure = draw(courses, targets)
    save_figure(folder / "comparison.png", figure)
    if kind != "png":
        save_lines(folder / f"comparison.{kind}", figure, kind)


def draw(courses: pd.DataFrame, targets: Mapping[str, Sequence[float]] | None = None) -> Figure:
    """Accuracy, or loss where the task has none, against rounds and against each cost.

    Args:
        courses: variant, seed, round, loss, accuracy, and the costs until then.
        targets: the targets of the scenarios by measure.
    """
    measure = "accuracy" if courses["accuracy"].notna().any() else "loss"
    bands = [band for band in _bands(courses, measure) if len(band.common)]
    if not bands:
        figure = style.new_figure(4.0)
        style.say(figure.subplots(), "No evaluation", "No run evaluated a model.")
        return figure
    costs = [cost for cost in COSTS if _known(bands, cost)]
    figure = style.new_figure(7.2)
    grid = figure.add_gridspec(2, max(len(costs), 1))
    by_round = figure.add_subplot(grid[0, :])
    rounds = [
        pd.DataFrame(dict.fromkeys(band.values, band.values.index), index=band.values.index)
        for band in bands
    ]
    _draw_bands(by_round, bands, rounds, measure)
    style.tidy(by_round, _end_finding(bands, measure), "round", measure)
    style.count(by_round.xaxis)
    goals = list((targets or {}).get(measure, ()))
    _scale(by_round, bands, measure, goals)
    for place, cost in enumerate(costs):
        axes = figure.add_subplot(grid[1, place], sharey=by_round)
        most = max(float(np.nanmax(band.spent[cost.column].to_numpy(float))) for band in bands)
        size, unit = cost.unit(most)
        _draw_bands(axes, bands, [band.spent[cost.column] / size for band in bands], measure)
        style.tidy(axes, _cost_finding(bands, measure, cost), f"{unit} {cost.label}",
                   "" if place else measure)  # fmt: skip
    _draw_targets(figure.axes, goals, measure)
    _draw_key(figure, by_round, bands)
    return figure


def _known(bands: Sequence[Band], cost: Cost) -> bool:
    """Whether the amounts of all variants are known wherever their values are, and any is spent."""
    spent = [band.spent[cost.column].to_numpy(float) for band in bands]
    there = [band.values.notna().to_numpy() for band in bands]
    return all(
        bool(np.isfinite(amounts[known]).all()) for amounts, known in zip(spent, there, strict=True)
    ) and any(float(np.nanmax(amounts)) > 0 for amounts in spent)


def _draw_bands(
    axes: Axes, bands: Sequence[Band], at: Sequence[pd.DataFrame], measure: str
) -> None:
    possible = _possible(bands, measure)
    for number, (band, x) in enumerate(zip(bands, at, strict=True)):
        _draw_band(axes, number, band, x, possible)


def _possible(bands: Sequence[Band], measure: str) -> tuple[float, float]:
    """The range of possible values. A loss is at least 0, unless one was found below."""
    if measure == "accuracy":
        return 0.0, 1.0
    low = min(float(np.nanmin(band.values.to_numpy(float))) for band in bands)
    return (0.0 if low >= 0 else -math.inf), math.inf


def _draw_targets(panels: Sequence[Axes], goals: Sequence[float], measure: str) -> None:
    text = percent_text if measure == "accuracy" else number_text
    label = f"target: {', '.join(map(text, goals))}"
    for axes in panels:
        for number, goal in enumerate(goals):
            axes.axhline(goal, color=style.INK, linestyle=":", linewidth=1.2,
                         label="_" if number else label)  # fmt: skip


def _draw_key(figure: Figure, axes: Axes, bands: Sequence[Band]) -> None:
    handles, _ = axes.get_legend_handles_labels()
    if any(len(band.values.columns) > 1 for band in bands):
        label = "95 % confidence interval of the mean"
        handles.append(Patch(color=style.MUTED, alpha=0.25, label=label))
    figure.legend(
        handles=handles, loc="outside upper left", ncols=_KEY_COLUMNS, frameon=False, fontsize=9,
        handlelength=1.6, columnspacing=1.6, labelcolor=style.INK,
    )  # fmt: skip


def _bands(courses: pd.DataFrame, measure: str) -> list[Band]:
    bands = []
    for variant, course in courses.groupby("variant", sort=False):
        values = course.pivot(index="round", columns="seed", values=measure)
        # A round that one seed did not evaluate left the model as it was: an empty round.
        inside = values.bfill().notna()
        spent = {
            cost.column: course.pivot(index="round", columns="seed", values=cost.column)
            for cost in COSTS
        }
        amounts = {name: table.ffill()[inside] for name, table in spent.items()}
        bands.append(Band(str(variant), values.ffill()[inside], amounts))
    return bands


def _draw_band(
    axes: Axes, number: int, band: Band, x: pd.DataFrame, possible: tuple[float, float]
) -> None:
    colour = _COLOURS[number % len(_COLOURS)]
    dash = _DASHES[number // len(_COLOURS) % len(_DASHES)]
    values, at = band.values.loc[band.common], x.loc[band.common].mean(axis="columns")
    label = _named(band.variant, _LONGEST)
    mean = values.mean(axis="columns")
    half = values.apply(lambda seeds: interval(seeds).half, axis="columns")
    low, high = ((mean + sign * half).clip(*possible) for sign in (-1, 1))
    axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0, step="post")
    axes.plot(at, mean, color=colour, linestyle=dash, linewidth=1.8, label=label,
              drawstyle="steps-post")  # fmt: skip
    axes.plot(at.iloc[-1], mean.iloc[-1], "o", color=colour, markersize=5, clip_on=False)
    for seed in band.values:
        alone = band.values[seed].loc[band.common[-1] :].dropna()
        if len(alone) > 1:
            axes.plot(x[seed].loc[alone.index], alone, "-o", color=colour, linewidth=0.8,
                      alpha=0.6, markersize=3.5, markevery=[-1],
                      drawstyle="steps-post")  # fmt: skip


def _scale(axes: Axes, bands: list[Band], measure: str, goals: Sequence[float]) -> None:
    """Scale the vertical axis to the seeds' values and the targets: intervals of two seeds may be
    far wider."""
    values = np.concatenate([goals, *(band.values.to_numpy(float).ravel() for band in bands)])
    values = values[np.isfinite(values)]
    low, high = (values.min(), values.max()) if len(values) else (0.0, 0.0)
    logarithmic = measure == "loss" and low > 0 and high > 100 * low
    if measure == "accuracy":
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, symbol=" %"))
    if logarithmic:
        axes.set_yscale("log")
        axes.set_ylim(low / _ROOM_FACTOR, high * _ROOM_FACTOR)
    elif low < high:
        room, (least, most) = _ROOM * (high - low), _possible(bands, measure)
        axes.set_ylim(max(low - room, least), min(high + room, most))


def _end_finding(bands: list[Band], measure: str) -> str:
    ends = {band.variant: band.ends for band in bands}
    if len(bands) == 1:
        return f"{_named(bands[0].variant, 22)} ended at {_mean_text(bands[0].ends, measure)}"
    best = _best(ends, measure)
    if best is None:
        return "No variant ended clearly best"
    return f"{_named(best, 22)} ended best, at {_mean_text(ends[best], measure)}"


def _cost_finding(bands: list[Band], measure: str, cost: Cost) -> str:
    """Which variant was best when each had spent as much as the thriftiest spent in all."""
    budget = float(min(band.spent[cost.column].loc[band.common[-1]].mean() for band in bands))
    after = {band.variant: band.after(cost, budget) for band in bands}
    if len(bands) == 1:
        return f"After {cost.text(budget)}: {_mean_text(after[bands[0].variant], measure)}"
    best = _best(after, measure)
    if best is None:
        return f"For {cost.text(budget)}, no variant is clearly best"
    value = _mean_text(after[best], measure)
    return f"Best for {cost.text(budget)}: {_named(best, 22)}, at {value}"


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
