"""The charts of links: transfers beside their links, the transfers of a round one by one, and the
use of the links of every group over time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from muster.emulator.records.account import Account
from muster.emulator.records.summary import clean, percent_text, seconds_text
from muster.emulator.report.chart import MOST_PANELS, Axis, Chart, Layer, group_colours, line
from muster.emulator.report.hours import MOST_TICKS
from muster.emulator.report.links import DIRECTIONS, moves_in, rate_text, rate_unit
from muster.emulator.report.timeline import Timeline, bins_for, most_called
from muster.emulator.report.use import LinkUse, links_with_traffic, span_of, used

BUSY = 0.9
"""Share of a link's capacity from which on it counts as nearly full."""

MOST_DEVICES = 40
"""The most rows in the chart of a round."""

_MOST_DOTS, _DOTS_WIDE = 1000, 0.8
_MOST_INTERVALS, _MOST_ROUND_MARKS = 600, 100


# --- transfers beside their links ----------------------------------------------------------------


def rates(account: Account) -> list[Chart]:
    """The achieved rate of every transfer and the rate of its link, by group and direction."""
    every = moves_in(account)
    moves = every[every["rate_bps"].gt(0) & every["round"].isin(account.rounds["round"])]
    groups = most_called(moves["group"])
    if not groups:
        return []
    parts = [
        (f"{clean(group)} {way}", here)
        for group in groups
        for way in DIRECTIONS
        if len(here := moves[(moves["group"] == group) & (moves["direction"] == way)])
    ]
    timeline = Timeline.of(account, bins_for(len(moves), len(parts)))
    return [_rates_of(name, here, timeline) for name, here in parts]


def _rates_of(name: str, moves: pd.DataFrame, timeline: Timeline) -> Chart:
    bins = timeline.bins_of(moves["round"])
    levels = moves[["own_bps", "fair_bps"]].groupby(bins).median().reindex(range(timeline.bins))
    stated, part = float(moves["own_bps"].median()), float(levels["fair_bps"].max())
    # A few transfers are faster than their link because a buffer took all their bytes at once.
    median = float(moves["rate_bps"].median())
    high = min(moves["rate_bps"].quantile(0.98), 3 * np.fmax(median, stated))
    usual = np.fmax(high, stated)
    top = 1.12 * float(np.fmax(usual, part) if part < 2 * usual else usual)
    size, unit = rate_unit(top)
    shown = moves.iloc[:: math.ceil(len(moves) / _MOST_DOTS)]
    dots = np.minimum(shown["rate_bps"], top) / size
    layers = [line("dots", _places(moves, timeline)[shown.index], dots, "blue", "a transfer",
                   opacity=0.6)]  # fmt: skip
    for column, colour, label in (
        ("own_bps", "ink", "its link"),
        ("fair_bps", "orange", "fair share of the shared link"),
    ):
        drawn = levels[column].where(levels[column] <= top) / size
        if drawn.notna().any():
            layers.append(line("levels", timeline.edges, drawn, colour, label))
    against = f"of {stated / size:.3g} {unit}" if math.isfinite(stated) else f"{unit}, no limit"
    y = Axis(unit, low=0.0, high=top / size)
    return Chart(f"{name}: median {median / size:.3g} {against}", layers,
                 timeline.axis(MOST_TICKS // 2), y)  # fmt: skip


def _places(moves: pd.DataFrame, timeline: Timeline) -> pd.Series:
    """The horizontal position of each transfer: side by side in its round, in order of time."""
    by_round = moves.groupby("round")["asked"]
    rank, count = by_round.rank(method="first"), by_round.transform("size")
    share = 0.5 + _DOTS_WIDE * ((rank - 0.5) / count - 0.5)
    return pd.Series(timeline.places(moves["round"], share), moves.index)


# --- the transfers of a round --------------------------------------------------------------------


def waits(account: Account) -> list[Chart]:
    """The slowest round and the median one: when each device waited and transferred."""
    moves = moves_in(account)
    rounds = account.rounds[account.rounds["round"].isin(moves["round"])]
    rounds = rounds[rounds[["opened_at", "seconds"]].notna().all(axis="columns")]
    if rounds.empty:
        return []
    colours = group_colours(list(moves["group"].cat.categories))
    first_at = float((moves["began_at"] - moves["asked"]).iloc[0])
    return [
        _waits_in(row, what, moves[moves["round"] == row["round"]], colours, first_at)
        for row, what in _rounds_to_show(rounds)
    ]


def _rounds_to_show(rounds: pd.DataFrame) -> "list[tuple[pd.Series, str]]":
    """The slowest and the median round, with these words."""
    ordered = rounds.sort_values("seconds", kind="stable")
    if len(ordered) == 1:
        return [(ordered.iloc[0], "the only one")]
    return [
        (ordered.iloc[-1], "the slowest"),
        (ordered.iloc[(len(ordered) - 1) // 2], "the median"),
    ]


def _waits_in(
    row: pd.Series, what: str, moves: pd.DataFrame, colours: Mapping[str, str], first_at: float
) -> Chart:
    """A row for each device: pale while it waits, full while it transfers."""
    shown, opened = _longest(moves), row["opened_at"] - first_at
    order = shown.groupby(["group", "client"], observed=True)["ended"].max()
    clients = order.reset_index().sort_values(["group", "ended"], kind="stable")["client"]
    places = {client: place for place, client in enumerate(clients)}
    layers = []
    for group, part in shown.groupby("group", observed=True):
        *others, last = _spans(part, colours[str(group)], places, opened)
        layers += [*others, replace(last, label=clean(str(group)))]
    lasted = float(row["seconds"])
    layers.append(line("down", [lasted], [], "ink", "round closed", width=1.2, dashed=True))
    asked, ended = float((shown["asked"] - opened).min()), float((shown["ended"] - opened).max())
    finding = f"Round {int(row['round'])}, {what}: {seconds_text(lasted)}; {_spent(moves)}"
    devices = moves["client"].nunique()
    more = "" if devices == len(places) else (
        f" (the {MOST_DEVICES} of {devices} devices that took longest)"
    )  # fmt: skip
    x = Axis(f"seconds since the round opened{more}", low=min(0.0, asked), high=max(lasted, ended))
    y = Axis(ticks=[(place, clean(client)) for client, place in places.items()])
    return Chart(finding, layers, x, y, rows=len(places))


def _longest(moves: pd.DataFrame) -> pd.DataFrame:
    """The transfers of the devices that spent most time waiting and transferring."""
    spent = (moves["wait_s"] + moves["seconds"]).groupby(moves["client"]).sum()
    longest = spent.sort_values(ascending=False, kind="stable").index[:MOST_DEVICES]
    return moves[moves["client"].isin(longest)]


def _spans(
    moves: pd.DataFrame, colour: str, places: Mapping[str, int], opened: float
) -> list[Layer]:
    """The waits and the transfers of a group; those of models are paler than those of updates."""
    layers = []
    for way, opacity in (("down", 0.55), ("up", 1.0)):
        part = moves[moves["direction"] == way]
        asked, began, ended = (part[name] - opened for name in ("asked", "began", "ended"))
        rows, waits = part["client"].map(places), part["wait_s"] > 0
        layers += [
            line("spans", asked[waits], rows[waits], colour, ends=began[waits], opacity=0.22),
            line("spans", began, rows, colour, ends=ended, opacity=opacity),
        ]
    return [layer for layer in layers if len(layer.x)]


def _spent(moves: pd.DataFrame) -> str:
    waited, moved = moves["wait_s"].sum(), moves["seconds"].sum()
    return f"devices waited {seconds_text(waited)} and transferred {seconds_text(moved)} in all"


# --- the use of links over time ------------------------------------------------------------------


def link_use(account: Account) -> list[Chart]:
    """The traffic of every link and cell over time, as a share of what it can carry, or as a
    rate."""
    links = links_with_traffic(account)
    if not links:
        return []
    span = span_of(account.traffic)
    wanted = [
        (link, table, ways, share)
        for link in links
        for table in [used(link.traffic, span, _MOST_INTERVALS)]
        for ways, share in _ways(table)
    ]
    # If there are too many charts, those without a shared link are left out first, then cells.
    order = sorted(range(len(wanted)), key=lambda at: (not wanted[at][3], wanted[at][0].depth))
    drawn = [wanted[at] for at in sorted(order[:MOST_PANELS])]
    return [_use(account, *each, span) for each in drawn]


def _ways(table: pd.DataFrame) -> list[tuple[list[str], bool]]:
    """The charts of a group: the directions with a shared link, and those without."""
    shared = [way for way in DIRECTIONS if table[way].notna().any()]
    free = [way for way in DIRECTIONS if way not in shared and table[f"{way}_bps"].notna().any()]
    return [(ways, share) for ways, share in ((shared, True), (free, False)) if ways]


def _use(
    account: Account,
    link: LinkUse,
    table: pd.DataFrame,
    ways: Sequence[str],
    share: bool,
    span: tuple[float, float],
) -> Chart:
    start = account.run.started_at
    size, unit = _time_unit(span[1] - start)
    edges = (np.append(table["begin"], table["end"].iloc[-1]) - start) / size
    columns = {way: table[way if share else f"{way}_bps"] for way in ways}
    divide, rate = (1.0, "") if share else rate_unit(max(float(c.max()) for c in columns.values()))
    layers = [_rounds_opened(account.rounds, start, size)]
    if "up" in ways:
        layers.append(line("filled", edges, columns["up"] / divide, "light", "up"))
    if "down" in ways:
        layers.append(line("levels", edges, columns["down"] / divide, "ink", "down", width=1.0))
    low, high = ((edge - start) / size for edge in span)
    x = Axis(f"{unit} since the run started", low=low, high=high)
    most = max(float(column.max()) for column in columns.values())
    what = "of the cell" if link.depth else "of the shared link"
    full = Axis(what, "percent", 0.0, max(1.0, min(1.02 * most, 1.5)))
    y = full if share else Axis(rate, low=0.0)
    return Chart(f"{clean(link.title)}: {_use_finding(table, ways, share)}", layers, x, y)


def _rounds_opened(rounds: pd.DataFrame, start: float, size: float) -> Layer:
    opened = rounds["opened_at"].dropna()
    marks = opened.iloc[:: math.ceil(len(opened) / _MOST_ROUND_MARKS) or 1]
    return line("down", (marks - start) / size, [], "orange", "a round opens", width=0.8,
                opacity=0.5)  # fmt: skip


def _use_finding(table: pd.DataFrame, ways: Sequence[str], share: bool) -> str:
    parts = []
    for way in ways:
        if share:
            busy = (table[way] >= BUSY).mean()
            parts.append(f"{way} {percent_text(table[way].mean())} used, {percent_text(busy)} of "
                         f"the time nearly full")  # fmt: skip
        else:
            levels = table[f"{way}_bps"]
            parts.append(f"{way} {rate_text(levels.mean())}, at most {rate_text(levels.max())}")
    return "; ".join(parts)


def _time_unit(seconds: float) -> tuple[float, str]:
    for size, unit in ((3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 3 * size:
            return size, unit
    return 1.0, "seconds"
