"""Staleness: the section, and the charts of the staleness of folded updates by version and group.

The staleness of an update is the number of versions that were made between the version from which
it was trained and the round in which it counted.
"""

from dataclasses import replace

import numpy as np
import pandas as pd

from muster.emulator.records.account import Account
from muster.emulator.records.scenario_time import outlives_round
from muster.emulator.records.summary import clean, number_text, percent_text
from muster.emulator.report.chart import MOST_PANELS, Axis, Chart, by_round, line, over_rounds
from muster.emulator.report.section import ReportSection, ReportTable, Summary

_MOST_BINS = 30


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


def stale_updates(account: Account) -> list[Chart]:
    """The staleness of folded updates: its range over rounds, and its distribution by group."""
    folded = folded_updates(account)
    if folded.empty:
        return []
    groups = [
        group for group in account.clients["group"].drop_duplicates()
        if (folded["group"] == group).any()
    ][:MOST_PANELS]  # fmt: skip
    size = -(-(int(folded["staleness"].max()) + 1) // _MOST_BINS)
    edges = np.arange(0, folded["staleness"].max() + size + 1, size) - 0.5
    of_group = dict(iter(folded.groupby("group")["staleness"]))
    return [_course(folded), *(_distribution(group, of_group[group], edges) for group in groups)]


def _course(folded: pd.DataFrame) -> Chart:
    """The median and the range of the updates of each round that folded any."""
    rounds = folded.groupby("round")["staleness"]
    low = by_round(rounds.min(), "light").y
    band = by_round(rounds.max(), "light", "smallest to largest", "filled", opacity=0.5)
    layers = [replace(band, low=low), by_round(rounds.median(), "blue", "median")]
    stale, most = (folded["staleness"] > 0).mean(), int(folded["staleness"].max())
    versions = "version" if most == 1 else "versions"
    finding = (
        f"{percent_text(stale)} of the folded updates were stale, by {most:,} {versions} at most"
    )
    return over_rounds(finding, layers, Axis("staleness", "count", 0.0))


def _distribution(group: str, staleness: pd.Series, edges: np.ndarray) -> Chart:
    counts, _ = np.histogram(staleness, edges)
    finding = f"median {staleness.median():g}, mean {number_text(staleness.mean())}"
    x = Axis("staleness in versions", "count", edges[0], edges[-1])
    layers = [line("filled", edges, counts, "blue", opacity=0.8)]
    return Chart(f"{clean(group)}: {finding}", layers, x, Axis("updates", "count", 0.0))
