"""The outcome of every call: a row for each device, a column for each round.

A cell that stands for several calls has the colour of their most frequent outcome.
"""

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from muster.emulator.records.account import Account
from muster.emulator.records.summary import clean, percent_text
from muster.emulator.report import style
from muster.emulator.report.losses import what_counts
from muster.emulator.report.names import drawable
from muster.emulator.report.timeline import Timeline, nothing

KINDS = {
    "folded": style.BLUE,
    "gave up, late or lost": style.ORANGE,
    "declined": "#f3d27a",
    "not reached": "#94a0ac",
}
"""The outcomes that the map distinguishes, and their colours."""

_NOT_CALLED = "#f1f4f6"
_MOST_COLUMNS, _MOST_ROWS = 600, 300  # at least two pixels to a cell
_ROW_IN, _LOWEST_IN, _HIGHEST_IN, _AROUND_IN = 0.16, 0.8, 4.5, 1.3
_MOST_GROUPS, _SEPARATE_ROWS = 12, 60

Ints: TypeAlias = npt.NDArray[np.int64]


def call_map(account: Account) -> Figure:
    """The outcome of every call, by client and round."""
    calls, clients = account.calls, account.clients
    if calls.empty:
        return nothing("No call", "No call was answered.")
    line, kinds = Timeline.of(account, _MOST_COLUMNS), kinds_of(calls)
    places = calls["client"].cat.codes.to_numpy().astype(np.int64)
    rows, tops, members = client_rows(clients, places)
    cells = call_cells(rows[places], line.bins_of(calls["round"]), kinds, (tops[-1], line.bins))
    figure = style.new_figure(min(max(_ROW_IN * tops[-1], _LOWEST_IN), _HIGHEST_IN) + _AROUND_IN)
    axes = figure.subplots()
    style.tidy(axes, calls_finding(account), key=True)
    right = line.edges[0] + line.size * line.bins
    axes.imshow(_colours(cells), aspect="auto", interpolation="nearest",
                extent=(line.edges[0], right, tops[-1] - 0.5, -0.5))  # fmt: skip
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    line.label(axes)
    _label_rows(axes, clients["group"], tops)
    axes.set_ylabel(_grain(members, line.grain), color=style.MUTED, fontsize=9)
    _key(axes, cells)
    return figure


def kinds_of(calls: pd.DataFrame) -> Ints:
    """The place in `KINDS` of every row of `Account.calls`."""
    fate, reason = calls["fate"], calls["reason"]
    away = (fate == "absent") | ((fate == "declined") & (reason == "offline"))
    return np.select([fate == "folded", away, fate == "declined"], [0, 3, 2], default=1)


def client_rows(clients: pd.DataFrame, called: Ints) -> tuple[Ints, Ints, int]:
    """Place clients into rows.

    Returns:
        The row of each client, -1 for clients that could not be called; the first row of each
        group, followed by the number of rows; and the number of clients of a group per row.
    """
    shows = (clients["enrolled"] == 1).to_numpy(bool, copy=True)
    shows[called] = True
    members = math.ceil(shows.sum() / _MOST_ROWS)
    codes, names = pd.factorize(clients["group"])
    counts = np.bincount(codes[shows], minlength=len(names))
    tops = np.concatenate([[0], np.cumsum(-(-counts // members))])
    rows = np.full(len(clients), -1)
    for group in range(len(names)):
        here = shows & (codes == group)
        rows[here] = tops[group] + np.arange(counts[group]) // members
    return rows, tops, members


def call_cells(rows: Ints, columns: Ints, kinds: Ints, shape: tuple[int, int]) -> Ints:
    """The most frequent kind of each cell; -1 if no device was called."""
    flat = np.ravel_multi_index((rows, columns, kinds), (*shape, len(KINDS)))
    counts = np.bincount(flat, minlength=shape[0] * shape[1] * len(KINDS))
    counts = counts.reshape(*shape, len(KINDS))
    return np.where(counts.any(axis=-1), counts.argmax(axis=-1), -1)


def _colours(cells: Ints) -> npt.NDArray[np.float64]:
    palette = np.array([to_rgb(colour) for colour in (*KINDS.values(), _NOT_CALLED)])
    return palette[cells]


def all_alike(account: Account) -> bool:
    """Whether all calls ended in the same way, so that a map of them would have one colour."""
    calls, clients = account.calls, account.clients
    called = len(calls) == len(account.rounds) * int((clients["enrolled"] == 1).sum())
    return called and len(np.unique(kinds_of(calls))) == 1


def calls_finding(account: Account) -> str:
    """The shares of the outcomes, as a clause."""
    kinds, of = kinds_of(account.calls), what_counts(account)
    shares = np.bincount(kinds, minlength=len(KINDS)) / len(kinds)
    parts = [
        f"{percent_text(share)} {name}"
        for name, share in zip(KINDS, shares.tolist(), strict=True)
        if share
    ]
    if len(parts) == 1:
        return f"All {of}: {[*KINDS][kinds[0]]}"
    return f"{of.capitalize()}: {', '.join(parts)}"


def _label_rows(axes: Axes, groups: pd.Series, tops: Ints) -> None:
    """Label the groups and draw white lines between them; with few rows, also between rows."""
    axes.set_yticks([])
    if tops[-1] <= _SEPARATE_ROWS:
        for row in range(1, tops[-1]):
            axes.axhline(row - 0.5, color="white", linewidth=0.8)
    names = groups.drop_duplicates().to_numpy()[np.diff(tops) > 0]
    tops = np.unique(tops)  # a group without a device that could be called has no row
    if not 2 <= len(names) <= _MOST_GROUPS:
        return
    labels = [drawable(clean(name)) for name in names]
    axes.set_yticks((tops[:-1] + tops[1:] - 1) / 2, labels, parse_math=False)
    for top in tops[1:-1]:
        axes.axhline(top - 0.5, color="white", linewidth=3)


def _grain(members: int, bins: str) -> str:
    parts = [*([f"{members} devices"] if members > 1 else []), *([bins] if bins else [])]
    return f"most frequent of {' × '.join(parts)}" if parts else "devices"


def _key(axes: Axes, cells: Ints) -> None:
    entries = [*KINDS.items(), ("not called", _NOT_CALLED)]
    there = sorted({int(kind) % len(entries) for kind in np.unique(cells)})
    marks = [
        Patch(facecolor=colour, label=name) for name, colour in map(entries.__getitem__, there)
    ]
    style.key_above(axes, marks, columns=len(entries))
