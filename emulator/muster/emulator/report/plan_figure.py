"""The figure of a plan: available and delivering devices over the hours of the day."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
from matplotlib.figure import Figure

from muster.common.seeds import FloatArray
from muster.emulator.planning.result import Counting, Plan
from muster.emulator.records.summary import clean, percent_text
from muster.emulator.report import figure_files, style
from muster.emulator.report.chart import SHARE, Axis, Chart, group_colours, line
from muster.emulator.report.hours import SHORTEST_MIN, Hours

Quantity: TypeAlias = tuple[str, Axis, str, Mapping[str, FloatArray]]
"""A title, the vertical axis, what the values are shares of or count, and the values of each group
by round, shape (rounds,), NaN without a value."""

_POINTS = 400


def write_figure(path: Path, plan: Plan) -> None:
    """Draw a plan into a PNG file."""
    figure_files.save(path, draw(plan))


def draw(plan: Plan) -> Figure:
    """Draw availability, participation and, if there are batteries, their mean charge.

    A chart in which all groups stay at the same share is left out, and its share is stated.
    """
    charts, flat = [], []
    for title, y, of, values in _quantities(plan):
        only = _only_value(values)
        if only is None:
            charts.append(_chart(plan, title, y, values))
        else:
            text = percent_text(only) if y.text == "percent" else f"{only:.3g}"
            flat.append(f"{title}: {text} {of} in every round")
    height = 0.15 + 0.25 * len(flat)
    figure = figure_files.draw(charts, columns=1) if charts else style.new_figure(height)
    if flat:
        figure.supxlabel("\n".join(flat), x=0.01, ha="left", fontsize=9, color=style.MUTED)
    return figure


def _quantities(plan: Plan) -> Iterator[Quantity]:
    groups = [group for group in plan.groups if group.enrolled]
    reached = {group.name: group.available / group.enrolled for group in groups}
    yield _shares("Devices that can be reached", "of enrolled", reached)
    if plan.versions is None:
        taking = {
            group.name: np.where(group.called, group.in_time / np.maximum(group.called, 1), np.nan)
            for group in groups
        }
        yield _shares("Devices that deliver in time when called", "of called", taking)
    else:
        ages = {group.name: _staleness(group.counting) for group in groups if group.counting}
        title = "Staleness of the updates that count (mean)"
        yield title, Axis("versions", low=0.0), "versions", ages
    if charge := {group.name: group.charge for group in groups if np.ptp(group.charge) > 0}:
        yield _shares("Battery charge", "of a full battery (mean)", charge)


def _shares(title: str, of: str, values: Mapping[str, FloatArray]) -> Quantity:
    return title, replace(SHARE, label=f"share {of}", high=1.02), of, values


def _only_value(values: Mapping[str, FloatArray]) -> float | None:
    """The value that all groups have in all rounds; None if there is no such value."""
    every = np.concatenate([np.zeros(0), *values.values()])
    found = np.unique(every[~np.isnan(every)])
    return float(found[0]) if len(found) == 1 else None


def _staleness(counting: Counting) -> FloatArray:
    """Mean staleness of the updates that count in each round; NaN if none does."""
    sums = np.where(counting.folded, counting.staleness, np.nan)
    return np.asarray(sums / np.maximum(counting.folded, 1))


def _chart(plan: Plan, title: str, y: Axis, values: Mapping[str, FloatArray]) -> Chart:
    """A level over each round; in a long plan, over the mean of neighbouring rounds."""
    colours = group_colours([group.name for group in plan.groups if group.enrolled])
    minutes = np.append(plan.times_s, _end_s(plan)) / 60
    size = -(-len(plan.times_s) // _POINTS)
    edges = np.append(minutes[:-1:size], minutes[-1])
    layers = [
        line("levels", edges, _means(of_group, size), colours[name], clean(name))
        for name, of_group in values.items()
    ]
    return Chart(title, layers, _hours(plan, minutes), y)


def _means(values: FloatArray, size: int) -> FloatArray:
    """Means of so many neighbours; NaN over rounds in which no device was called."""
    padded = np.pad(values, (0, -len(values) % size), constant_values=np.nan).reshape(-1, size)
    counts = np.count_nonzero(~np.isnan(padded), axis=1)
    nothing = np.full(len(counts), np.nan)
    means = np.divide(np.nansum(padded, axis=1), counts, out=nothing, where=counts > 0)
    return np.asarray(means, np.float64)


def _end_s(plan: Plan) -> float:
    """The scenario second at which the last round ends. If that is not planned, a round lasts as
    long as the one before."""
    if plan.end_s is not None:
        return plan.end_s or plan.scenario.clock.round_s
    last = plan.times_s[-2:]
    return float(last[-1] + (last[-1] - last[0] or plan.scenario.clock.round_s))


def _hours(plan: Plan, minutes: FloatArray) -> Axis:
    """The horizontal axis with the hours of the day."""
    begin, end = float(minutes[0]), float(minutes[-1])
    if end - begin < SHORTEST_MIN:
        return Axis("minutes of scenario time", low=begin, high=end)
    zones = [group.device.time_zone for group in plan.scenario.groups]
    hours = Hours.of(plan.scenario.clock.starts_at_h, zones)
    places, labels = hours.ticks(begin, end)
    ticks = list(zip(places.tolist(), labels, strict=True))
    return Axis(hours.name, low=begin, high=end, ticks=ticks)
