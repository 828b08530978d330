"""The outcome of every call: a row for each device, a column for each round.

A cell that stands for several calls has the colour of their most frequent outcome.
"""

import math
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from muster.emulator.records.account import Account
from muster.emulator.records.summary import clean, percent_text
from muster.emulator.report.chart import Axis, Cells, Chart
from muster.emulator.report.losses import what_counts
from muster.emulator.report.timeline import Timeline

KINDS = {
    "folded": "blue",
    "gave up, late or lost": "orange",
    "declined": "sand",
    "not reached": "grey",
}
"""The outcomes that the map distinguishes, and their colours."""

_MOST_COLUMNS, _MOST_ROWS = 600, 300  # at least two pixels to a cell
_MOST_GROUPS = 12

Ints: TypeAlias = npt.NDArray[np.int64]


def call_map(account: Account) -> list[Chart]:
    """The outcome of every call, by client and round."""
    calls, clients = account.calls, account.clients
    if calls.empty:
        return []
    line, kinds = Timeline.of(account, _MOST_COLUMNS), kinds_of(calls)
    places = calls["client"].cat.codes.to_numpy().astype(np.int64)
    rows, tops, members = client_rows(clients, places)
    cells = call_cells(rows[places], line.bins_of(calls["round"]), kinds, (tops[-1], line.bins))
    axis = line.axis()
    x = replace(axis, high=float(line.edges[0] + line.size * line.bins))
    y = Axis(_grain(members, line.grain), ticks=_row_ticks(clients["group"], tops))
    drawn = Cells(_letters(cells), [(colour, name) for name, colour in KINDS.items()])
    return [Chart(calls_finding(account), (), x, y, rows=int(tops[-1]), cells=drawn)]


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


def _letters(cells: Ints) -> list[str]:
    letters = np.array([*(chr(ord("a") + kind) for kind in range(len(KINDS))), " "])
    return ["".join(row) for row in letters[cells].tolist()]


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


def _row_ticks(groups: pd.Series, tops: Ints) -> list[tuple[float, str]]:
    """The names of groups in the middle of their rows, unless there are too many."""
    names = groups.drop_duplicates().to_numpy()[np.diff(tops) > 0]
    tops = np.unique(tops)  # a group without a device that could be called has no row
    if not 2 <= len(names) <= _MOST_GROUPS:
        return []
    middles = (tops[:-1] + tops[1:] - 1) / 2
    return [(middle, clean(name)) for middle, name in zip(middles.tolist(), names, strict=True)]


def _grain(members: int, bins: str) -> str:
    parts = [*([f"{members} devices"] if members > 1 else []), *([bins] if bins else [])]
    return f"most frequent of {' × '.join(parts)}" if parts else "devices"
