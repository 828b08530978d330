"""The figure of ĉ, the estimated share of each device in the rounds' means, over time."""

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from muster.emulator.records.account import Account
from muster.emulator.records.summary import clean, number_text
from muster.emulator.report import style
from muster.emulator.report.names import drawable
from muster.emulator.report.timeline import key, nothing

SHARES, FLOOR = "shares", "floor"

MOST_LINES = 30

# Okabe and Ito's colours without the yellow, which is hard to see on white.
_PALETTE = (style.BLUE, style.ORANGE, style.GREEN, "#cc79a7", style.AMBER, "#56b4e9", "#332288")
_OTHERS = "#9aa5b1"
_MOST_ROUNDS = 500


def shares_of(account: Account) -> pd.DataFrame:
    """ĉ by round (rows) and client (columns, in the order of the population); empty if there are
    no estimates."""
    estimates = account.estimates
    known = (estimates["key"] != "") & estimates["value"].notna()
    rows = estimates[(estimates["name"] == SHARES) & known]
    table = rows.astype({"key": str}).pivot(index="round", columns="key", values="value")
    return table[[client for client in account.clients["client"] if client in table]]


def floor_of(account: Account) -> float | None:
    """The newest floor δ; None if the aggregator reported none."""
    estimates = account.estimates
    rows = (estimates["name"] == FLOOR) & (estimates["key"] == "")
    floors = estimates.loc[rows, "value"].dropna()
    return float(floors.iloc[-1]) if len(floors) else None


def shares(account: Account) -> Figure:
    """ĉ of each device over rounds; for many devices, the quantiles of ĉ."""
    table, floor = shares_of(account), floor_of(account)
    if table.empty:
        return nothing("No shares", "No aggregator estimated any.")
    drawn = table.iloc[:: -(-len(table) // _MOST_ROUNDS)]
    figure = style.new_figure(3.2)
    axes = figure.subplots()
    draw = _lines if len(table.columns) <= MOST_LINES else _bands
    handles = draw(axes, drawn, account.clients.set_index("client")["group"])
    if floor is not None:
        axes.axhline(floor, color=style.INK, linewidth=1.2, linestyle=style.DASHES)
        label = f"floor δ = {number_text(floor)}"
        handles.append(
            Line2D([], [], color=style.INK, linewidth=1.2, linestyle=style.DASHES, label=label)
        )
    style.tidy(axes, finding(table, floor), "round", "ĉ")
    style.count(axes.xaxis)
    axes.set(xlim=(table.index[0] - 0.5, table.index[-1] + 0.5), ylim=(0, _top(table, floor)))
    key(figure, handles)
    return figure


def finding(table: pd.DataFrame, floor: float | None) -> str:
    """The range of the newest shares, as the beginning of a sentence."""
    last = table.iloc[-1].dropna()
    text = f"ĉ of {len(last):,} devices: {number_text(last.min())} to {number_text(last.max())}"
    below = int((last < floor).sum()) if floor is not None else 0
    return f"{text}, {below:,} below the floor" if below else text


def _top(table: pd.DataFrame, floor: float | None) -> float:
    """The top of the axis; the first rounds, when few devices share everything, may exceed it."""
    later = float(np.nanmax(table.iloc[len(table) // 10 :].to_numpy()))
    return 1.15 * max(later, floor or 0.0) or 1.0


def _lines(axes: Axes, table: pd.DataFrame, groups: "pd.Series[str]") -> list[Artist]:
    of_client = groups.reindex(table.columns)
    names = list(dict.fromkeys(of_client))
    colours = dict(zip(names, _PALETTE, strict=False))
    marker = "o" if len(table) == 1 else ""  # a single round would not show as a line
    for client, group in of_client.items():
        style.course(axes, table[client].dropna(), color=colours.get(group, _OTHERS),
                     linewidth=1.1, alpha=0.8, marker=marker)  # fmt: skip
    handles: list[Artist] = [
        Line2D([], [], color=colour, linewidth=1.8, label=f" {drawable(clean(name))}")
        for name, colour in colours.items()
    ]
    if len(names) > len(colours):
        handles.append(Line2D([], [], color=_OTHERS, linewidth=1.8, label="other groups"))
    return handles


def _bands(axes: Axes, table: pd.DataFrame, groups: "pd.Series[str]") -> list[Artist]:
    least, low, middle, high, most = np.nanquantile(table, [0, 0.1, 0.5, 0.9, 1], axis=1)
    axes.fill_between(table.index, least, most, color=style.PALE, linewidth=0, step="post")
    axes.fill_between(table.index, low, high, color=style.LIGHT, linewidth=0, step="post")
    style.course(axes, pd.Series(middle, table.index), color=style.BLUE, linewidth=1.8)
    return [
        Line2D([], [], color=style.BLUE, linewidth=1.8, label="median"),
        Patch(facecolor=style.LIGHT, label="10th to 90th percentile"),
        Patch(facecolor=style.PALE, label="lowest to highest"),
    ]
