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
from matplotlib.ticker import LogLocator, NullLocator, PercentFormatter

from muster.emulator.results.account import Account
from muster.emulator.results.report import style
from muster.emulator.results.report.balance_panels import balance
from muster.emulator.results.report.call_map import call_map
from muster.emulator.results.report.heat_strip import draw_heat_strip, strip_height_in
from muster.emulator.results.report.life import batteries, reasons
from muster.emulator.results.report.link_rates import rates
from muster.emulator.results.report.link_use import link_use
from muster.emulator.results.report.link_waits import waits
from muster.emulator.results.report.planned import planned
from muster.emulator.results.report.shares import shares
from muster.emulator.results.report.spread import groups
from muster.emulator.results.report.weights import weights
from muster.emulator.results.summary import (
    bytes_text,
    metrics_of,
    number_text,
    percent_text,
    seconds_text,
)

_COHORTS_IN = 1.9
_SHORT_S = 1e-3  # shorter times are noise of the clock, and would stretch the axis


def learning(account: Account) -> Figure:
    """Loss over rounds, and beside it accuracy or, without one, the task's first other metric."""
    measured = _measured(account)
    figure = style.new_figure(3.4)
    if measured.empty:
        style.say(figure.subplots(), "No evaluation", "No version of the model was evaluated.")
        return figure
    target = account.scenario.get("server", {}).get("target", {})
    panels = figure.subplots(1, len(measured.columns), squeeze=False)[0]
    for axes, name in zip(panels, measured.columns, strict=True):
        _course(axes, measured[name], target.get(name))
    return figure


def participation(account: Account) -> Figure:
    """Numbers of called, accepting and folded devices by round, and folded updates per client."""
    strip_in = strip_height_in(account)
    figure = style.new_figure(_COHORTS_IN + strip_in + 1.8)  # titles and labels
    rounds, clients = figure.subplots(2, 1, height_ratios=[_COHORTS_IN, strip_in])
    _cohorts(rounds, account)
    draw_heat_strip(clients, account)
    return figure


def time(account: Account) -> Figure:
    """Seconds per round, and the distributions of the updates' training and transfer times."""
    figure = style.new_figure(3.6)
    panels = figure.subplot_mosaic([["rounds", "train"], ["rounds", "transfer"]])
    _round_seconds(panels["rounds"], account)
    spent = account.contributions[["train_s", "transfer_s"]]
    edges = _edges(spent)
    panels["train"].sharex(panels["transfer"])
    _spread(panels["train"], "Training", spent["train_s"], edges, style.BLUE)
    _spread(panels["transfer"], "Transfer", spent["transfer_s"], edges, style.ORANGE)
    if panels["transfer"].axison:  # both panels share the scale below
        panels["train"].set_xlabel("")
        panels["train"].tick_params(labelbottom=False)
    return figure


def traffic(account: Account) -> Figure:
    """Bytes sent since the start, by round, and how many of them were not folded."""
    figure = style.new_figure(3.4)
    axes = figure.subplots()
    totals = account.round_totals
    if totals.empty:
        style.say(axes, "No traffic", "No round was committed.")
        return figure
    sent = totals.set_index("round")[["bytes_up", "bytes_down", "bytes_wasted"]].cumsum()
    # Bytes sent after the last committed round are added to that round.
    sent.iloc[-1] += [account.run.bytes_up, account.run.bytes_down, account.run.bytes_up]
    sent.loc[sent.index[0] - 1] = 0
    sent = sent.sort_index()
    size, unit = _unit(float(sent.to_numpy().max()))
    up, down, wasted = (float(sent[column].iloc[-1]) for column in sent)
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
    style.tidy(
        axes, _traffic_finding(up, down, wasted), "round", f"{unit} since the start", key=True
    )
    style.count(axes.xaxis)
    axes.set(xlim=(sent.index[0], sent.index[-1]), ylim=(0, None))
    style.key_above(axes)
    return figure


FIGURES: Mapping[str, Callable[[Account], Figure]] = MappingProxyType(
    {
        "learning": learning,
        "groups": groups,
        "participation": participation,
        "balance": balance,
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


def _measured(account: Account) -> pd.DataFrame:
    """Loss, and accuracy or the first other metric, as at most two columns indexed by round."""
    evaluations = account.evaluations
    metrics = pd.DataFrame([metrics_of(text) for text in evaluations["metrics"]])
    numbers = metrics.select_dtypes("number").drop(columns=["loss", "accuracy"], errors="ignore")
    columns = evaluations[["loss", "accuracy"]].join(numbers)
    columns.index = pd.Index(evaluations["round"], name="round")
    finite = columns.replace([np.inf, -np.inf], np.nan).dropna(axis="columns", how="all")
    return finite.iloc[:, :2]


def _course(axes: Axes, values: pd.Series, target: float | None) -> None:
    """Draw a metric over rounds, with its target as a dashed line."""
    name = str(values.name).replace("_", " ")
    values = values.dropna()
    text = percent_text if name == "accuracy" else number_text
    style.course(axes, values, color=style.BLUE, linewidth=1.8, clip_on=False)
    axes.plot(values.tail(1), "o", color=style.BLUE, markersize=5, clip_on=False)
    style.tidy(axes, _course_finding(name, values, text), "round", name)
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


def _course_finding(name: str, values: pd.Series, text: Callable[[float], str]) -> str:
    first, last = float(values.iloc[0]), float(values.iloc[-1])
    if len(values) == 1:
        return f"{name.capitalize()} was {text(last)} after round {values.index[-1]}"
    if text(first) == text(last):
        return f"{name.capitalize()} ended where it began, at {text(last)}"
    went = "rose" if last > first else "fell"
    return f"{name.capitalize()} {went} from {text(first)} to {text(last)}"


def _cohorts(axes: Axes, account: Account) -> None:
    """Draw called, accepted and folded as bars inside each other, and empty rounds as ticks."""
    rounds = account.rounds.set_index("round")[["called", "accepted", "folded"]]
    if rounds.empty:
        style.say(axes, "No round yet", "No round was committed, so no device took part.")
        return
    colours = {"called": style.PALE, "accepted": style.LIGHT, "folded": style.BLUE}
    size = style.bars(axes, rounds, colours)
    empty = rounds.index[rounds["folded"] == 0]
    if len(empty):
        low = np.full(len(empty), 0.03)  # as a share of the height
        axes.plot(empty, low, "|", color=style.ORANGE, markersize=9, markeredgewidth=1.6,
                  transform=axes.get_xaxis_transform(), label="empty round")  # fmt: skip
    unit = "clients" if size == 1 else f"clients (means of {size} rounds)"
    style.tidy(axes, _cohort_finding(rounds), "round", unit, key=True)
    style.count(axes.yaxis, 5)
    style.key_above(axes)


def _cohort_finding(rounds: pd.DataFrame) -> str:
    called, folded = rounds["called"].mean(), rounds["folded"].mean()
    if not called:
        return "No device was called"
    share = percent_text(folded / called)
    return f"{share} of the calls led to a folded update: {folded:.3g} of {called:.3g} per round"


def _round_seconds(axes: Axes, account: Account) -> None:
    rounds = account.rounds.set_index("round")[["seconds"]]
    if rounds.empty:
        style.say(axes, "No round yet", "No round was committed.")
        return
    size = style.bars(axes, rounds, {"seconds": style.LIGHT})
    median, most = rounds["seconds"].median(), rounds["seconds"].max()
    finding = f"A round took {seconds_text(median)} (median), {seconds_text(most)} at most"
    if len(rounds) == 1:
        finding = f"The round took {seconds_text(most)}"
    unit = "seconds" if size == 1 else f"seconds (means of {size} rounds)"
    style.tidy(axes, finding, "round", unit)


def _edges(spent: pd.DataFrame) -> np.ndarray:
    """The edges of bins for both training and transfer times; logarithmic if the range is wide."""
    values = spent.to_numpy().ravel()
    values = values[values >= _SHORT_S]
    if not len(values):
        return np.linspace(0, 1, 2)
    low, high = values.min(), values.max()
    if high > 20 * low:
        return np.geomspace(low, high, 41)
    return np.linspace(0, 1.1 * high, 41)


def _spread(axes: Axes, what: str, seconds: pd.Series, edges: np.ndarray, colour: str) -> None:
    seconds = seconds.dropna()
    if seconds.empty:
        style.say(axes, f"{what}: not reported", "No update reported how long it took.")
        return
    if seconds.max() < _SHORT_S:
        text = "Small models and updates travel inside other messages."
        style.say(axes, f"{what}: under a millisecond", text)
        return
    counts, _ = np.histogram(seconds.clip(edges[0], edges[-1]), edges)
    axes.stairs(counts, edges, fill=True, color=colour, alpha=0.8)
    median, most = seconds.quantile([0.5, 0.95])
    finding = f"{what}: median {seconds_text(median)}, 95 % under {seconds_text(most)}"
    style.tidy(axes, finding, "seconds", "updates")
    style.count(axes.yaxis, 3)
    if edges[0] > 0:
        narrow = edges[-1] < 300 * edges[0]
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if narrow else (1,)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlim=(edges[0], edges[-1]), ylim=(0, None))


def _unit(most: float) -> tuple[float, str]:
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if most >= 1024**power:
            return 1024.0**power, unit
    return 1.0, "bytes"


def _traffic_finding(up: float, down: float, wasted: float) -> str:
    finding = f"{bytes_text(up)} went up and {bytes_text(down)} down"
    return (
        f"{finding}; {percent_text(wasted / up)} of the upload did not count" if wasted else finding
    )
