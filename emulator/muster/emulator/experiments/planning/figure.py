"""The figure of a plan: available and delivering devices over scenario time."""

import io
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from muster.common.files import write_atomic
from muster.common.seeds import FloatArray
from muster.emulator.experiments.planning.plan import Plan
from muster.emulator.results.report import style

# Okabe and Ito's colours, which colour-blind readers tell apart.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#1f2933")
_POINTS = 400


def write_figure(path: Path, plan: Plan) -> None:
    """Draw a plan into a PNG file."""
    png = io.BytesIO()
    draw(plan).savefig(png, format="png")
    write_atomic(path, png.getvalue())


def draw(plan: Plan) -> Figure:
    """Draw availability, participation and, if there are batteries, their mean charge."""
    batteries = [g for g in plan.groups if g.enrolled and np.ptp(g.charge) > 0]
    figure = style.new_figure(7.5 if batteries else 5.2)
    reached, taking, *charge = figure.subplots(3 if batteries else 2, 1, sharex=True)
    hours = plan.times_s / 3600
    for number, group in enumerate(plan.groups):
        if not group.enrolled:
            continue
        colour = _COLOURS[number % len(_COLOURS)]
        _line(reached, hours, group.available / group.enrolled, colour, group.name)
        called = np.maximum(group.called, 1)
        _line(taking, hours, np.where(group.called, group.in_time / called, np.nan), colour,
              group.name)  # fmt: skip
        if group in batteries:
            _line(charge[0], hours, group.charge, colour, group.name)
    style.tidy(reached, "Devices that can be reached", y="share of enrolled", key=True)
    style.key_above(reached)
    style.tidy(taking, "Devices that deliver in time when called", y="share of called")
    for axes in (reached, taking, *charge):
        axes.set_ylim(-0.02, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    if charge:
        style.tidy(charge[0], "Battery charge", y="mean charge")
    last = charge[0] if charge else taking
    last.set_xlabel(_hours_text(plan), color=style.MUTED, fontsize=9.5)
    return figure


def _line(axes: Axes, x: FloatArray, y: FloatArray, colour: str, label: str) -> None:
    """Draw a line; in a long plan, each point is the mean of neighbouring rounds."""
    size = -(-len(x) // _POINTS)
    whole = len(x) // size * size
    rows = y[:whole].reshape(-1, size)
    with np.errstate(invalid="ignore"):  # a gap in rounds in which no device was called
        mean = np.nansum(rows, axis=1) / np.count_nonzero(~np.isnan(rows), axis=1)
    axes.plot(x[:whole:size], mean, color=colour, linewidth=1.6, label=label)


def _hours_text(plan: Plan) -> str:
    start_h = plan.scenario.clock.starts_at_h
    return f"hours of scenario time; it begins at {int(start_h):02d}:{start_h % 1 * 60:02.0f} UTC"
