"""The figure of a plan: available and delivering devices over the hours of the day."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from muster.common.files import write_atomic
from muster.common.seeds import FloatArray
from muster.emulator.planning.result import Counting, Plan
from muster.emulator.records.summary import clean, percent_text
from muster.emulator.report import style
from muster.emulator.report.hours import SHORTEST_MIN, Hours
from muster.emulator.report.names import drawable, noting_names

# Okabe and Ito's colours, which colour-blind readers tell apart.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#1f2933")
_POINTS = 400


def write_figure(path: Path, plan: Plan) -> None:
    """Draw a plan into a PNG file."""
    png = io.BytesIO()
    with noting_names():  # two groups must not have the same label
        draw(plan).savefig(png, format="png")
    write_atomic(path, png.getvalue())


def draw(plan: Plan) -> Figure:
    """Draw availability, participation and, if there are batteries, their mean charge.

    A panel in which all groups stay at the same share is left out, and its share is stated.
    """
    panels, flat = [], []
    for panel in _panels(plan):
        share = panel.only_share()
        if share is None:
            panels.append(panel)
        else:
            flat.append(f"{panel.title}: {panel.text(share)} {panel.of} in every round")
    around = 0.8 if panels else 0.15
    figure = style.new_figure(around + 2.2 * len(panels) + 0.25 * len(flat))
    if flat:
        figure.supxlabel("\n".join(flat), x=0.01, ha="left", fontsize=9, color=style.MUTED)
    if panels:
        _draw_panels(figure, plan, panels)
    return figure


@dataclass(frozen=True)
class _Panel:
    """A panel of the figure.

    Attributes:
        of: what the values are shares of; of numbers, what they count.
        shares: the value of each group by round, shape (rounds,), NaN without a value.
        numbers: the values are numbers, not shares.
    """

    title: str
    of: str
    shares: Mapping[str, FloatArray]
    numbers: bool = False

    def text(self, value: float) -> str:
        """A value as text."""
        return f"{value:.3g}" if self.numbers else percent_text(value)

    def only_share(self) -> float | None:
        """The share that all groups have in all rounds; None if there is no such share."""
        values = np.concatenate([np.zeros(0), *self.shares.values()])
        found = np.unique(values[~np.isnan(values)])
        return float(found[0]) if len(found) == 1 else None


def _panels(plan: Plan) -> list[_Panel]:
    groups = [group for group in plan.groups if group.enrolled]
    reached = {group.name: group.available / group.enrolled for group in groups}
    taking = {
        group.name: np.where(group.called, group.in_time / np.maximum(group.called, 1), np.nan)
        for group in groups
    }
    charge = {group.name: group.charge for group in groups if np.ptp(group.charge) > 0}
    panels = [_Panel("Devices that can be reached", "of enrolled", reached)]
    if plan.versions is None:
        panels.append(_Panel("Devices that deliver in time when called", "of called", taking))
    else:
        ages = {group.name: _staleness(group.counting) for group in groups if group.counting}
        panels.append(_Panel("Staleness of the updates that count (mean)", "versions", ages, True))
    if charge:
        panels.append(_Panel("Battery charge", "of a full battery (mean)", charge))
    return panels


def _staleness(counting: Counting) -> FloatArray:
    """Mean staleness of the updates that count in each round; NaN if none does."""
    sums = np.where(counting.folded, counting.staleness, np.nan)
    return np.asarray(sums / np.maximum(counting.folded, 1))


def _draw_panels(figure: Figure, plan: Plan, panels: Sequence[_Panel]) -> None:
    """Draw the panels one below the other, over the hours of the day."""
    names = [group.name for group in plan.groups if group.enrolled]
    colours = {name: _COLOURS[place % len(_COLOURS)] for place, name in enumerate(names)}
    minutes = np.append(plan.times_s, _end_s(plan)) / 60
    all_axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axes, panel in zip(all_axes, panels, strict=True):
        for name, shares in panel.shares.items():
            _steps(axes, minutes, shares, colours[name])
        style.tidy(axes, panel.title, y=panel.of if panel.numbers else f"share {panel.of}")
        if panel.numbers:
            axes.set_ylim(0, None)
            continue
        axes.set_ylim(-0.02, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    _label_hours(all_axes[-1], plan, minutes)
    style.key(figure, [
        Line2D([], [], color=colour, linewidth=1.6, label=f" {drawable(clean(name))}")
        for name, colour in colours.items()
    ])  # fmt: skip


def _end_s(plan: Plan) -> float:
    """The scenario second at which the last round ends. If that is not planned, a round lasts as
    long as the one before."""
    if plan.end_s is not None:
        return plan.end_s or plan.scenario.clock.round_s
    last = plan.times_s[-2:]
    return float(last[-1] + (last[-1] - last[0] or plan.scenario.clock.round_s))


def _steps(axes: Axes, edges: FloatArray, shares: FloatArray, colour: str) -> None:
    """Draw a level over each round; in a long plan, over the mean of neighbouring rounds."""
    size = -(-len(shares) // _POINTS)
    padded = np.pad(shares, (0, -len(shares) % size), constant_values=np.nan).reshape(-1, size)
    counts = np.count_nonzero(~np.isnan(padded), axis=1)
    # There is a gap over rounds in which no device was called.
    means = np.divide(np.nansum(padded, axis=1), counts, out=np.full(len(counts), np.nan),
                      where=counts > 0)  # fmt: skip
    bounds = np.append(edges[:-1:size], edges[-1])
    axes.stairs(means, bounds, baseline=None, color=colour, linewidth=1.6)


def _label_hours(axes: Axes, plan: Plan, minutes: FloatArray) -> None:
    """Label the horizontal axis with the hours of the day."""
    begin, end = float(minutes[0]), float(minutes[-1])
    axes.set_xlim(begin, end)
    if end - begin < SHORTEST_MIN:
        axes.set_xlabel("minutes of scenario time")
        return
    zones = [group.device.time_zone for group in plan.scenario.groups]
    hours = Hours.of(plan.scenario.clock.starts_at_h, zones)
    ticks, labels = hours.ticks(begin, end)
    axes.set_xticks(ticks, labels)
    axes.set_xlabel(hours.name)
