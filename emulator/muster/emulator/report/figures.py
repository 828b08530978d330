"""The figures of a report; each is drawn from the account alone and its title states the finding.

Every function also works for a run of one round, without evaluations, with empty rounds, or with
thousands of clients.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from muster.emulator.records.account import Account
from muster.emulator.records.summary import (
    bytes_text,
    metrics_of,
    number_text,
    percent_text,
)
from muster.emulator.report import style
from muster.emulator.report.balance_panels import balance
from muster.emulator.report.call_map import call_map
from muster.emulator.report.coverage import figure as coverage
from muster.emulator.report.life import batteries, reasons
from muster.emulator.report.link_rates import rates
from muster.emulator.report.link_use import link_use
from muster.emulator.report.link_waits import waits
from muster.emulator.report.pace import pace
from muster.emulator.report.participation import participation
from muster.emulator.report.planned import planned
from muster.emulator.report.shares import shares
from muster.emulator.report.spread import groups
from muster.emulator.report.staleness import stale_updates
from muster.emulator.report.timeline import nothing
from muster.emulator.report.times import time
from muster.emulator.report.utility_curves import utilities
from muster.emulator.report.weights import weights
from muster.emulator.report.willingness import willingness


def learning(account: Account) -> Figure:
    """Loss over rounds, or over versions in a mode that counts them, and beside it accuracy or,
    without one, the task's first other metric."""
    measured = measured_metrics(account)
    if measured.empty:
        return nothing("No evaluation", "No version of the model was evaluated.")
    figure = style.new_figure(3.4)
    target = account.scenario.get("server", {}).get("target", {})
    panels = figure.subplots(1, len(measured.columns), squeeze=False)[0]
    for axes, name in zip(panels, measured.columns, strict=True):
        _course(axes, measured[name], target.get(name))
    return figure


def traffic(account: Account) -> Figure:
    """Bytes sent since the start, by round, and how many of them were not folded."""
    totals = account.round_totals
    if totals.empty:
        return nothing("No traffic", "No round was committed.")
    figure = style.new_figure(3.4)
    axes = figure.subplots()
    sent = totals.set_index("round")[["bytes_up", "bytes_down", "bytes_wasted"]].cumsum()
    # Bytes sent after the last committed round are added to that round.
    sent.iloc[-1] += [account.run.bytes_up, account.run.bytes_down, account.run.bytes_up]
    sent.loc[sent.index[0] - 1] = 0
    sent = sent.sort_index()
    size, unit = _unit(float(sent.to_numpy().max()))
    up, down, wasted = traffic_sums(account)
    axes.plot(
        sent["bytes_up"] / size,
        color=style.LIGHT,
        linewidth=4.5,
        label=f"updates up, {bytes_text(up)}",
    )
    axes.plot(
        sent["bytes_down"] / size,
        "--",
        color=style.INK,
        linewidth=1.5,
        label=f"models down, {bytes_text(down)}",
    )
    if wasted:
        axes.fill_between(
            sent.index,
            sent["bytes_wasted"] / size,
            color=style.ORANGE,
            linewidth=0,
            label=f"of the updates not folded, {bytes_text(wasted)}",
        )
    style.tidy(axes, traffic_finding(account), "round", f"{unit} since the start", key=True)
    style.count(axes.xaxis)
    axes.set(xlim=(sent.index[0], sent.index[-1]), ylim=(0, None))
    style.key_above(axes)
    return figure


FIGURES: Mapping[str, Callable[[Account], Figure]] = MappingProxyType(
    {
        "learning": learning,
        "groups": groups,
        "participation": participation,
        "pace": pace,
        "staleness": stale_updates,
        "coverage": coverage,
        "balance": balance,
        "willingness": willingness,
        "utilities": utilities,
        "weights": weights,
        "shares": shares,
        "calls": call_map,
        "reasons": reasons,
        "batteries": batteries,
        "planned": planned,
        "time": time,
        "bytes": traffic,
        "rates": rates,
        "waits": waits,
        "links": link_use,
    }
)
"""File name without ".png" to the function that draws the figure."""


def measured_metrics(account: Account) -> pd.DataFrame:
    """Loss, and accuracy or the first other metric, as at most two columns indexed by round, or by
    version in a mode that counts versions. The name of the index says which."""
    evaluations = account.evaluations
    metrics = pd.DataFrame([metrics_of(text) for text in evaluations["metrics"]])
    numbers = metrics.select_dtypes("number").drop(columns=["loss", "accuracy"], errors="ignore")
    columns = evaluations[["loss", "accuracy"]].join(numbers)
    counted = "version" if account.counts_versions else "round"
    columns.index = pd.Index(evaluations[counted], name=counted)
    finite = columns.replace([np.inf, -np.inf], np.nan).dropna(axis="columns", how="all")
    return finite.iloc[:, :2]


def _course(axes: Axes, values: pd.Series, target: float | None) -> None:
    """Draw a metric over rounds, with its target as a dashed line."""
    name = str(values.name).replace("_", " ")
    values = values.dropna()
    text = _text_of(name)
    style.course(axes, values, color=style.BLUE, linewidth=1.8, clip_on=False)
    axes.plot(values.tail(1), "o", color=style.BLUE, markersize=5, clip_on=False)
    style.tidy(axes, course_finding(name, values), str(values.index.name), name)
    style.count(axes.xaxis)
    if values.min() > 0 and values.max() > 100 * values.min():
        axes.set_yscale("log")
    if name == "accuracy":
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, symbol=" %"))
    if target is not None:
        axes.axhline(target, color=style.ORANGE, linewidth=1.2, linestyle=style.DASHES)
        axes.annotate(f"target {text(target)}", (0, target), xycoords=("axes fraction", "data"),
                      xytext=(2, 3), textcoords="offset points", fontsize=9,
                      color=style.ORANGE)  # fmt: skip


def course_finding(metric: str, values: pd.Series) -> str:
    """How a metric went, or its only value, as a clause."""
    name, text = metric.replace("_", " "), _text_of(metric)
    first, last = float(values.iloc[0]), float(values.iloc[-1])
    if len(values) == 1:
        return f"{name.capitalize()} was {text(last)} after {values.index.name} {values.index[-1]}"
    if text(first) == text(last):
        return f"{name.capitalize()} ended where it began, at {text(last)}"
    went = "rose" if last > first else "fell"
    return f"{name.capitalize()} {went} from {text(first)} to {text(last)}"


def _text_of(metric: str) -> Callable[[float], str]:
    return percent_text if metric == "accuracy" else number_text


def _unit(most: float) -> tuple[float, str]:
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if most >= 1024**power:
            return 1024.0**power, unit
    return 1.0, "bytes"


def traffic_sums(account: Account) -> tuple[float, float, float]:
    """Bytes of updates up and of models down, and those of updates that were not folded."""
    up, down = account.traffic_totals
    return up, down, float(account.round_totals["bytes_wasted"].sum()) + account.run.bytes_up


def traffic_finding(account: Account) -> str:
    """The bytes that travelled, as a clause."""
    up, down, wasted = traffic_sums(account)
    finding = f"{bytes_text(up)} went up and {bytes_text(down)} down"
    return (
        f"{finding}; {percent_text(wasted / up)} of the upload did not count" if wasted else finding
    )
