"""The sections on links.

A run has them only if models or updates travelled in chunks, or if there were gateways.
"""

import math
from typing import Any

import pandas as pd

from muster.emulator.records.account import Account
from muster.emulator.records.summary import bytes_text, clean, percent_text, seconds_text
from muster.emulator.report.chart import left_out
from muster.emulator.report.link_charts import BUSY
from muster.emulator.report.links import (
    DIRECTIONS,
    NOBODY,
    links_of,
    moves_in,
    rate_text,
    slow_seconds,
    slowed_by,
    totals_of,
    waited_for,
)
from muster.emulator.report.section import ReportSection, ReportTable, Summary
from muster.emulator.report.use import LinkUse, cap_of, links_with_traffic, span_of, used

MOST_WAITERS = 20

MOST_NAMES = 12
"""The most columns that the matrix has. With more devices, its rows and columns are groups; with
more groups, some are left out."""

_MOST_INTERVALS = 100_000

_LEAST_S = 1e-3  # shorter times are noise of the clocks


def rates(account: Account, summary: Summary) -> ReportSection | None:
    moves = moves_in(account)
    if moves.empty:
        return None
    rows = [
        [
            clean(row["group"]), row["direction"], f"{row['transfers']:,}",
            bytes_text(row["bytes"]),
            *(_seconds(row[key]) for key in ("median_s", "p90_s", "median_wait_s")),
            *(rate_text(row[key]) for key in ("rate_bps", "own_bps", "shared_bps", "fair_bps")),
            percent_text(row["waiting"]), percent_text(row["transferring"]),
        ]
        for row in totals_of(moves, account.rounds).to_dict("records")
    ]  # fmt: skip
    columns = ["group", "", "transfers", "bytes", "median time", "90 % within", "median wait",
               "median rate", "own link", "shared link", "fair share", "waiting",
               "transferring"]  # fmt: skip
    note = (
        "Own link: the long-term rate of a device's own link. Shared link: the rate that the group "
        "shares. Fair share: the shared rate divided by the number of transfers at the same time. "
        "Waiting and transferring are shares of the duration of the rounds in which the devices "
        "transferred; they exceed 100 % if transfers outlast their rounds. A transfer that was cut "
        "off or broke counts with the bytes that it moved."
    )
    text = (
        "A dot on the dark line used its link fully; on a fading link, some dots lie above the "
        "line. A dot far below it was limited by the group's shared link if it lies at the orange "
        "line, and by something else if not. Dots at the upper edge were even faster than drawn."
    )
    table = ReportTable(columns, rows, note, words=2)
    points = left_out(moves["group"].nunique())
    return ReportSection(
        "Transfer time against link", text, figure="rates", table=table, points=points
    )


def waits(account: Account, summary: Summary) -> ReportSection | None:
    moves, links = moves_in(account), links_of(account.scenario)
    if moves.empty:
        return None
    moves["slow_s"] = slow_seconds(moves)
    lost = moves.groupby("client")[["wait_s", "slow_s"]].sum()
    worst = lost.sum(axis="columns").sort_values(ascending=False, kind="stable")
    names = worst[worst >= _LEAST_S].index[:MOST_WAITERS]
    waited = waited_for(moves, links, "client", names)
    slowed = slowed_by(moves, "client", names)
    group_of = moves.drop_duplicates("client").set_index("client")["group"]
    rows = [
        [clean(name), clean(group_of[name]), *_most(waited.loc[name]), *_most(slowed.loc[name])]
        for name in names
    ]
    columns = ["device", "group", "waited", "most for", "slowed", "most by"]
    left_out = int((worst >= _LEAST_S).sum()) - len(names)
    note = (
        "Each second of waiting is divided equally among the devices that transferred during it: "
        "the devices of the same group if the group's slots have a queue, otherwise all devices. "
        "Slowed: the extra seconds that transfers took compared with having the link alone. If the "
        "group shares a link, they are attributed to the devices that transferred at the same time."
    )
    note += f" {left_out:,} more devices lost less time." if left_out else ""
    text = (
        "The slowest round and the median round, with a row for each device: very pale while it "
        "waits, pale while the model comes down, full while its update goes up. A device waits "
        "until it gets a slot of its group's link, or until the server lets it transfer."
    )
    facts = [
        ("waited", seconds_text(moves["wait_s"].sum())),
        ("transferred", seconds_text(moves["seconds"].sum())),
        ("slowed by sharing or fading", seconds_text(moves["slow_s"].sum())),
    ]
    table = ReportTable(columns, rows, note, words=2) if rows else None
    return ReportSection("Who waited for whom", text, facts, figure="waits", table=table)


def matrix(account: Account, summary: Summary) -> ReportSection | None:
    moves, links = moves_in(account), links_of(account.scenario)
    lost = moves["wait_s"].sum() + slow_seconds(moves).sum()
    if moves.empty or lost < _LEAST_S:
        return None
    by = "client" if moves["client"].nunique() <= MOST_NAMES else "group"
    waited, slowed = waited_for(moves, links, by), slowed_by(moves, by)
    names = _most_involved(waited.add(slowed, fill_value=0.0).drop(columns=NOBODY))
    rows = [
        [clean(name), what, *(_cell(table, name, whom) for whom in [*names, NOBODY]),
         _seconds(table.loc[name].sum())]
        for name in names
        for what, table in (("waited", waited), ("slowed", slowed))
        if name in table.index and table.loc[name].sum() >= _LEAST_S
    ]  # fmt: skip
    what = "device" if by == "client" else "group"
    columns = [what, "", *map(clean, names), "nobody", "all"]
    left_out = moves[by].nunique() - len(names)
    note = f"{left_out:,} more {what}s are left out, but counted in the last column."
    text = (
        f"Each row is a {what} that lost time. Each column is the {what} that it waited for or was "
        f"slowed by. Nobody: no other transfer was under way or no link was shared, so the link "
        f"itself took longer."
    )
    table = ReportTable(columns, rows, note if left_out else "", words=2)
    return ReportSection(f"Waiting, {what} by {what}", text, table=table)


def use(account: Account, summary: Summary) -> ReportSection | None:
    traffic = account.traffic
    if traffic.empty:
        return None
    span, links = span_of(traffic), links_with_traffic(account)
    rows = [_use_row(link, way, span) for link in links for way in DIRECTIONS]
    columns = ["link", "", "moved", "mean rate", "shared", "used", "nearly full"]
    note = (
        "Moved: all bytes that the gateways passed on: the bodies of models and updates, and the "
        f"protocol around them. Nearly full: share of the time in which {percent_text(BUSY)} or "
        "more of the link was used."
    )
    if any(link.depth for link in links):
        note += " A dot before a name: a cell of the link above; more dots: a cell within a cell."
    if hidden := account.cell_traffic.groupby(["group", "cell"]).ngroups - sum(
        bool(link.depth) for link in links
    ):
        note += f" {hidden:,} more cells carried less."
    text = (
        "A shared link that is full while a round is open decides how long the round lasts. A link "
        "that is never full could be shared by more devices."
    )
    table = ReportTable(columns, rows, note, words=2)
    return ReportSection("Use of shared links", text, figure="links", table=table)


def _use_row(link: LinkUse, way: str, span: tuple[float, float]) -> list[str]:
    table, cap = used(link.traffic, span, _MOST_INTERVALS), cap_of(link.traffic, way)
    nearly_full = (table[way] >= BUSY).mean() if cap > 0 else math.nan
    return [
        clean("· " * link.depth + link.title), way,
        bytes_text(link.traffic[f"bytes_{way}"].sum()),
        rate_text(table[f"{way}_bps"].mean()), rate_text(cap),
        percent_text(table[way].mean()), percent_text(nearly_full),
    ]  # fmt: skip


def _most(seconds: pd.Series) -> list[str]:
    """The seconds that a device lost, and the other device that caused most of them."""
    total, others = float(seconds.sum()), seconds.drop(NOBODY)
    if total < _LEAST_S:
        return ["–", ""]
    if others.empty or others.max() < _LEAST_S:
        return [_seconds(total), "nobody"]
    return [_seconds(total), f"{clean(others.idxmax())}, {_seconds(others.max())}"]


def _most_involved(lost: pd.DataFrame) -> list[str]:
    """The names that lost most time or were waited for longest, in the order of the table."""
    both = lost.sum(axis="columns").add(lost.sum(axis="index"), fill_value=0.0)
    most = set(both.sort_values(ascending=False, kind="stable").index[:MOST_NAMES])
    return [str(name) for name in lost.columns if name in most]


def _cell(table: pd.DataFrame, name: str, whom: str) -> str:
    return _seconds(table.loc[name, whom]) if whom in table else "–"


def _seconds(seconds: Any) -> str:
    return "–" if pd.isna(seconds) or seconds < _LEAST_S else seconds_text(seconds)
