"""The charts of ĉ, the estimated share of each device in the rounds' means, over time."""

import numpy as np
import pandas as pd

from muster.emulator.records.account import Account
from muster.emulator.records.summary import clean, number_text
from muster.emulator.report.chart import (
    Axis,
    Chart,
    Layer,
    course,
    group_colours,
    line,
    over_rounds,
)

SHARES, FLOOR = "shares", "floor"

MOST_LINES = 30

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


def shares(account: Account) -> list[Chart]:
    """ĉ of each device over rounds; for many devices, the quantiles of ĉ."""
    table, floor = shares_of(account), floor_of(account)
    if table.empty:
        return []
    drawn = table.iloc[:: -(-len(table) // _MOST_ROUNDS)]
    draw = _lines if len(table.columns) <= MOST_LINES else _bands
    layers = draw(drawn, account.clients.set_index("client")["group"])
    if floor is not None:
        label = f"floor δ = {number_text(floor)}"
        layers.append(line("across", [], [floor], "ink", label, width=1.2, dashed=True))
    x = Axis("round", "count", table.index[0] - 0.5, table.index[-1] + 0.5)
    y = Axis("ĉ", low=0.0, high=_top(table, floor))
    return [over_rounds(finding(table, floor), layers, y, x)]


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


def _lines(table: pd.DataFrame, groups: "pd.Series[str]") -> list[Layer]:
    of_client = groups.reindex(table.columns)
    colours, layers = group_colours(list(dict.fromkeys(of_client))), list[Layer]()
    for client, group in of_client.items():
        named = any(layer.label == clean(group) for layer in layers)
        label = "" if named else clean(group)
        layers.append(course(table[client].dropna(), colours[group], label, width=1.1))
    return layers


def _bands(table: pd.DataFrame, groups: "pd.Series[str]") -> list[Layer]:
    least, low, middle, high, most = (
        pd.Series(values, table.index)
        for values in np.nanquantile(table, [0, 0.1, 0.5, 0.9, 1], axis=1)
    )
    return [
        _band(least, most, "pale", "lowest to highest"),
        _band(low, high, "light", "10th to 90th percentile"),
        course(middle, "blue", "median"),
    ]


def _band(low: pd.Series, high: pd.Series, colour: str, label: str) -> Layer:
    """The area between two quantiles, each of which stays until the next round with a value."""
    edges = [*high.index, high.index[-1] + 0.5]
    return line("filled", edges, high, colour, label, low=low)
