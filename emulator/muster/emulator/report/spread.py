"""The charts of how evenly the model serves groups (over rounds) and devices (at the end)."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from muster.emulator.records.account import Account
from muster.emulator.records.parts import last_devices, measure_of, spread_of
from muster.emulator.records.summary import clean, number_text, percent_text
from muster.emulator.report.chart import Axis, Chart, Text, course, line, over_rounds

_BINS = 20


def groups(account: Account) -> list[Chart]:
    """Accuracy, or loss without accuracy, of every group over rounds and of devices at the end.

    What would show a single value, or nothing that is finite, is left out.
    """
    by_group, devices = account.group_evaluations, last_devices(account)
    courses = _courses(by_group) if by_group["round"].nunique() > 1 else None
    distribution = _distribution(devices) if len(devices) > 1 else None
    return [chart for chart in (courses, distribution) if chart]


def single_values(account: Account) -> list[str]:
    """Sentences that state what the figure leaves out, because it is a single value."""
    devices = last_devices(account)
    if len(devices) != 1:
        return []
    name = measure_of(devices)
    text = percent_text if name == "accuracy" else number_text
    return [f"The only device ended at {text(devices[name].iloc[0])} ({name})."]


def _courses(evaluations: pd.DataFrame) -> Chart | None:
    """All groups as pale lines, and the groups that end best and worst in colour; None if no group
    has a finite value."""
    name = measure_of(evaluations)
    finite = evaluations.replace([np.inf, -np.inf], np.nan)
    table = finite.pivot_table(index="round", columns="group", values=name, sort=False)
    if table.empty:
        return None
    last = table.iloc[-1].dropna().sort_values(kind="stable", ascending=name == "loss")
    others = table.columns.difference([last.index[0], last.index[-1]], sort=False)
    layers = [course(table[group].dropna(), "light", width=1.2) for group in others]
    text = percent_text if name == "accuracy" else number_text
    ends = {last.index[-1]: "orange", last.index[0]: "blue"}  # a single group is blue
    for group, colour in reversed(ends.items()):
        label = f"{clean(group)}, {text(last[group])}"
        layers.append(course(table[group].dropna(), colour, label, width=1.8))
    return over_rounds(_courses_finding(last, text), layers, Axis(name, _written(name)))


def _courses_finding(last: pd.Series, text: Callable[[float], str]) -> str:
    if len(last) == 1:
        return f"The only group ended at {text(last.iloc[0])}"
    best, worst = text(last.iloc[0]), text(last.iloc[-1])
    if best == worst:
        return f"All {len(last)} groups ended at {best}"
    return f"{len(last)} groups ended between {worst} and {best}"


def _distribution(devices: pd.DataFrame) -> Chart | None:
    """A histogram of the devices' accuracy or loss under the last version of the model; None if no
    device has a finite value."""
    name = measure_of(devices)
    values = devices[name].replace([np.inf, -np.inf], np.nan).dropna()
    if values.empty:
        return None
    share = name == "accuracy"
    text = percent_text if share else number_text
    low, high = (0.0, 1.0) if share else (0.0, float(values.max()) or 1.0)
    counts, edges = np.histogram(values, _BINS, (low, high))
    spread = spread_of(devices[name])
    median, tail = spread["median"], spread["p10" if share else "p90"]
    than = "a tenth below" if share else "a tenth above"
    layers = [
        line("filled", edges, counts, "light"),
        line("down", [median], [], "blue", "median", width=1.8),
        line("down", [tail], [], "orange", than, width=1.8),
    ]
    left_out = len(devices) - len(values)
    unit = "devices" if not left_out else f"devices ({left_out} more have no finite loss)"
    x = Axis(f"{name} at the end", _written(name), low, high)
    finding = f"Devices: median {text(median)}, {than} {text(tail)}"
    return Chart(finding, layers, x, Axis(unit, "count", 0.0))


def _written(name: str) -> Text:
    return "percent" if name == "accuracy" else "number"
