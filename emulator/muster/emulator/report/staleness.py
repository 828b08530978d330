"""Staleness: the section, and the figure of the staleness of folded updates by version and group.

The staleness of an update is the number of versions that were made between the version from which
it was trained and the round in which it counted.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from muster.emulator.records.account import Account
from muster.emulator.records.scenario_time import outlives_round
from muster.emulator.records.summary import clean, number_text, percent_text
from muster.emulator.report import style
from muster.emulator.report.names import drawable
from muster.emulator.report.section import ReportSection, ReportTable, Summary
from muster.emulator.report.timeline import MOST_PANELS, nothing

_MOST_BINS = 30
_COURSE_IN, _PANEL_IN, _AROUND_IN = 2.4, 1.1, 1.0


def folded_updates(account: Account) -> pd.DataFrame:
    """The folded updates with their `group`; empty unless any of them was stale."""
    sent = account.contributions
    folded = sent[sent["outcome"] == "folded"]
    if not outlives_round(account.scenario) or not (folded["staleness"] > 0).any():
        return folded.iloc[:0].assign(group="")
    return folded.assign(group=folded["client"].map(_groups(account)))


def _groups(account: Account) -> pd.Series:
    return account.clients.set_index("client")["group"]


def section(account: Account, summary: Summary) -> ReportSection | None:
    """The figure, and a row for each group; None if no folded update was stale."""
    folded = folded_updates(account)
    if folded.empty:
        return None
    sent = account.contributions
    late = sent[(sent["outcome"] == "late") & (sent["reason"] == "stale")]
    too_old = late["client"].map(_groups(account)).value_counts()
    weight = float(folded["weight"].sum())
    rows = []
    for group in account.clients["group"].drop_duplicates():
        mine = folded[folded["group"] == group]
        largest = f"{mine['staleness'].max():,}" if len(mine) else "–"
        share = mine["weight"].sum() / weight if weight > 0 else None
        rows.append(
            [clean(group), f"{len(mine):,}", number_text(mine["staleness"].mean()), largest,
             percent_text(share), f"{too_old.get(group, 0):,}"]
        )  # fmt: skip
    text = (
        "The staleness of an update is the number of versions that were made between the version "
        "from which it was trained and the round in which it counted. A group with a high "
        "staleness works on old versions, and its updates may count for less "
        "(`server.mode.staleness_weight`)."
    )
    columns = ["group", "updates folded", "mean staleness", "largest", "share of the weight",
               "late because stale"]  # fmt: skip
    note = "Share of the weight: of the sum of the weights of all folded updates of the run."
    return ReportSection(
        "Staleness", text, figure="staleness", table=ReportTable(columns, rows, note)
    )


def stale_updates(account: Account) -> Figure:
    """The staleness of folded updates: its range over rounds, and its distribution by group."""
    folded = folded_updates(account)
    if folded.empty:
        return nothing("No stale update", "No folded update was stale.")
    groups = [
        group for group in account.clients["group"].drop_duplicates()
        if (folded["group"] == group).any()
    ][:MOST_PANELS]  # fmt: skip
    heights = [_COURSE_IN, *[_PANEL_IN] * len(groups)]
    figure = style.new_figure(sum(heights) + _AROUND_IN + 0.4 * len(groups))
    first, *others = figure.subplots(len(heights), 1, height_ratios=heights)
    _course(first, folded)
    size = -(-(int(folded["staleness"].max()) + 1) // _MOST_BINS)
    edges = np.arange(0, folded["staleness"].max() + size + 1, size) - 0.5
    for axes, group in zip(others, groups, strict=True):
        _distribution(axes, group, folded.loc[folded["group"] == group, "staleness"], edges)
    others[-1].set_xlabel("staleness in versions", color=style.MUTED, fontsize=9.5)
    return figure


def _course(axes: Axes, folded: pd.DataFrame) -> None:
    """Draw the median and the range of the updates of each round that folded any."""
    by_round = folded.groupby("round")["staleness"]
    rounds = np.arange(folded["round"].min(), folded["round"].max() + 1)
    low, median, high = (part.reindex(rounds) for part in
                         (by_round.min(), by_round.median(), by_round.max()))  # fmt: skip
    edges = np.append(rounds, rounds[-1] + 1) - 0.5
    axes.stairs(high, edges, baseline=low.to_numpy(float), fill=True, color=style.LIGHT, alpha=0.5,
                linewidth=0, label="smallest to largest")  # fmt: skip
    style.by_round(axes, median, color=style.BLUE, linewidth=1.6, label="median")
    stale, most = (folded["staleness"] > 0).mean(), int(folded["staleness"].max())
    versions = "version" if most == 1 else "versions"
    finding = (
        f"{percent_text(stale)} of the folded updates were stale, by {most:,} {versions} at most"
    )
    style.tidy(axes, finding, "round", "staleness", key=True)
    axes.set_ylim(0, None)
    style.count(axes.xaxis)
    style.count(axes.yaxis, 5)
    style.key_above(axes)


def _distribution(axes: Axes, group: str, staleness: pd.Series, edges: np.ndarray) -> None:
    counts, _ = np.histogram(staleness, edges)
    axes.stairs(counts, edges, fill=True, color=style.BLUE, alpha=0.8)
    finding = f"median {staleness.median():g}, mean {number_text(staleness.mean())}"
    style.tidy(axes, f"{drawable(clean(group))}: {finding}", "", "updates")
    axes.set(xlim=(edges[0], edges[-1]), ylim=(0, None))
    style.count(axes.xaxis)
    style.count(axes.yaxis, 3)
