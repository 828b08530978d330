"""The figures of a report: each is a list of charts, made from the account alone, whose titles
state the finding.

Every function also works for a run of one round, without evaluations, with empty rounds, or with
thousands of clients; a figure with nothing to show has no charts.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import pandas as pd

from muster.emulator.records.account import Account
from muster.emulator.records.parts import metrics_of
from muster.emulator.records.summary import bytes_text, number_text, percent_text
from muster.emulator.report.balance_charts import balance
from muster.emulator.report.call_map import call_map
from muster.emulator.report.chart import Axis, Chart, Layer, by_round, course, line, over_rounds
from muster.emulator.report.coverage import charts as coverage
from muster.emulator.report.life import batteries, reasons
from muster.emulator.report.link_charts import link_use, rates, waits
from muster.emulator.report.pace import pace
from muster.emulator.report.participation import participation
from muster.emulator.report.planned import planned
from muster.emulator.report.shares import shares
from muster.emulator.report.spread import groups
from muster.emulator.report.staleness import stale_updates
from muster.emulator.report.times import time
from muster.emulator.report.utility_curves import utilities
from muster.emulator.report.weights import weights
from muster.emulator.report.willingness import willingness


def learning(account: Account) -> list[Chart]:
    """Loss over rounds, or over versions in a mode that counts them, and beside it accuracy or,
    without one, the task's first other metric."""
    measured = measured_metrics(account)
    target = dict(account.scenario.get("server", {}).get("target", {}))
    target |= target.get("at_least", {}) | target.get("at_most", {})
    return [
        _course(measured[name].dropna(), target.get(name))
        for name in (measured.columns if len(measured) else ())
    ]


def traffic(account: Account) -> list[Chart]:
    """Bytes sent since the start, by round, and how many of them were not folded."""
    totals = account.round_totals
    if totals.empty:
        return []
    sent = totals.set_index("round")[["bytes_up", "bytes_down", "bytes_wasted"]].cumsum()
    # Bytes sent after the last committed round are added to that round.
    sent.iloc[-1] += [account.run.bytes_up, account.run.bytes_down, account.run.bytes_up]
    sent.loc[sent.index[0] - 1] = 0
    sent = sent.sort_index()
    size, unit = _unit(float(sent.to_numpy().max()))
    up, down, wasted = traffic_sums(account)
    thin = sent.iloc[:: -(-len(sent) // _MOST_POINTS)] / size
    layers = [
        line("line", thin.index, thin["bytes_up"], "light", f"updates up, {bytes_text(up)}",
             width=4.5),
        line("line", thin.index, thin["bytes_down"], "ink", f"models down, {bytes_text(down)}",
             dashed=True),
    ]  # fmt: skip
    if wasted:
        label = f"of the updates not folded, {bytes_text(wasted)}"
        layers.append(by_round(sent["bytes_wasted"] / size, "orange", label, "filled"))
    axis = Axis(f"{unit} since the start", low=0.0)
    return [over_rounds(traffic_finding(account), layers, axis)]


FIGURES: Mapping[str, Callable[[Account], list[Chart]]] = MappingProxyType(
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
"""The name of a figure, and of its file, to the function that makes its charts."""

_MOST_POINTS = 500


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


def _course(values: pd.Series, target: float | None) -> Chart:
    """A metric over rounds, with its target as a dashed line."""
    name, counted = str(values.name).replace("_", " "), str(values.index.name)
    log = bool(values.min() > 0 and values.max() > 100 * values.min())
    layers = [course(values, "blue")]
    if target is not None:
        layers.append(_target(target, f"target {_text_of(name)(target)}"))
    y = Axis(name, "percent" if name == "accuracy" else "number", log=log)
    title, x = course_finding(name, values), Axis(counted, "count")
    return Chart(title, layers, x, y, over_rounds=counted == "round")


def _target(value: float, label: str) -> Layer:
    return line("across", [], [value], "orange", label, width=1.2, dashed=True)


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
