"""The figure of how evenly the model serves groups (over rounds) and devices (at the end)."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from muster.emulator.records.account import Account
from muster.emulator.records.parts import last_devices, measure_of, spread_of
from muster.emulator.records.summary import clean, number_text, percent_text
from muster.emulator.report import style
from muster.emulator.report.names import drawable
from muster.emulator.report.timeline import nothing

_BINS = 20
_LONGEST = 14  # letters of a group's name: two legend entries share a panel


def groups(account: Account) -> Figure:
    """Accuracy, or loss without accuracy, of every group over rounds and of devices at the end.

    A panel that would show a single value is left out.
    """
    draws = panels_of(account)
    if not draws:
        return nothing("Not measured", "The scenario did not ask for it, or there is one value.")
    figure = style.new_figure(3.6)
    for axes, draw in zip(figure.subplots(1, len(draws), squeeze=False)[0], draws, strict=True):
        draw(axes)
    return figure


def panels_of(account: Account) -> list[Callable[[Axes], None]]:
    """The functions that draw the panels of the figure: those with more than a single value."""
    by_group, devices = account.group_evaluations, last_devices(account)
    draws: list[Callable[[Axes], None]] = []
    if by_group["round"].nunique() > 1:
        draws.append(partial(_courses, evaluations=by_group))
    if len(devices) > 1:
        draws.append(partial(_distribution, devices=devices))
    return draws


def single_values(account: Account) -> list[str]:
    """Sentences that state what the figure leaves out, because it is a single value."""
    devices = last_devices(account)
    if len(devices) != 1:
        return []
    name = measure_of(devices)
    text = percent_text if name == "accuracy" else number_text
    return [f"The only device ended at {text(devices[name].iloc[0])} ({name})."]


def _courses(axes: Axes, evaluations: pd.DataFrame) -> None:
    """Draw all groups as pale lines, and the groups that end best and worst in colour."""
    name = measure_of(evaluations)
    finite = evaluations.replace([np.inf, -np.inf], np.nan)
    table = finite.pivot_table(index="round", columns="group", values=name, sort=False)
    if table.empty:
        style.say(axes, "Not a number", "No group has a loss that is finite.")
        return
    last = table.iloc[-1].dropna().sort_values(kind="stable", ascending=name == "loss")
    for group in table.columns.difference([last.index[0], last.index[-1]], sort=False):
        style.course(axes, table[group], color=style.LIGHT, linewidth=1.2)
    text = percent_text if name == "accuracy" else number_text
    ends = {last.index[-1]: style.ORANGE, last.index[0]: style.BLUE}  # a single group is blue
    for group, colour in reversed(ends.items()):
        label = f"{drawable(clean(group), _LONGEST)}, {text(last[group])}"
        # The space is needed because matplotlib leaves out labels that begin with "_".
        style.course(
            axes, table[group], color=colour, linewidth=1.8, clip_on=False, label=f" {label}"
        )
    style.tidy(axes, _courses_finding(last, text), "round", name, key=True)
    style.count(axes.xaxis)
    _percent(axes.yaxis, name)
    style.key_above(axes)
    legend = axes.get_legend()
    for entry in legend.get_texts() if legend else []:
        entry.set_parse_math(False)


def _courses_finding(last: pd.Series, text: Callable[[float], str]) -> str:
    if len(last) == 1:
        return f"The only group ended at {text(last.iloc[0])}"
    best, worst = text(last.iloc[0]), text(last.iloc[-1])
    if best == worst:
        return f"All {len(last)} groups ended at {best}"
    return f"{len(last)} groups ended between {worst} and {best}"


def _distribution(axes: Axes, devices: pd.DataFrame) -> None:
    """Draw a histogram of the devices' accuracy or loss under the last version of the model."""
    name = measure_of(devices)
    values = devices[name].replace([np.inf, -np.inf], np.nan).dropna()
    if values.empty:
        style.say(axes, "Not a number", "No device has a loss that is finite.")
        return
    share = name == "accuracy"
    text = percent_text if share else number_text
    low, high = (0.0, 1.0) if share else (0.0, float(values.max()) or 1.0)
    counts, edges = np.histogram(values, _BINS, (low, high))
    axes.stairs(counts, edges, fill=True, color=style.LIGHT)
    spread = spread_of(devices[name])
    median, tail = spread["median"], spread["p10" if share else "p90"]
    for value, colour in ((median, style.BLUE), (tail, style.ORANGE)):
        if math.isfinite(value):
            axes.axvline(value, color=colour, linewidth=1.8)
    than = "below" if share else "above"
    finding = f"Devices: median {text(median)}, a tenth {than} {text(tail)}"
    left_out = len(devices) - len(values)
    unit = "devices" if not left_out else f"devices ({left_out} more have no finite loss)"
    style.tidy(axes, finding, f"{name} at the end", unit)
    style.count(axes.yaxis, 5)
    _percent(axes.xaxis, name)
    axes.set(xlim=(low, high), ylim=(0, math.ceil(counts.max() * 1.05)))


def _percent(axis: Axis, name: str) -> None:
    if name == "accuracy":
        axis.set_major_formatter(PercentFormatter(xmax=1, symbol=" %"))
