"""The figure of the traffic over the links of every group, over time."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from muster.emulator.records.account import Account
from muster.emulator.records.summary import clean, percent_text
from muster.emulator.report import style
from muster.emulator.report.links import DIRECTIONS, rate_text, rate_unit
from muster.emulator.report.names import drawable
from muster.emulator.report.timeline import MOST_PANELS, key, nothing, panels
from muster.emulator.report.use import span_of, used

_MOST_INTERVALS, _MOST_ROUND_MARKS = 600, 100
BUSY = 0.9
"""Share of a link's capacity from which on it counts as nearly full."""


def link_use(account: Account) -> Figure:
    """The traffic of every group over time, as a share of its shared link, or as a rate."""
    traffic = account.traffic
    reported = set(traffic["group"])
    every = [*(name for name in dict.fromkeys(account.clients["group"]) if name in reported)]
    every += sorted(reported.difference(every))
    if not every:
        return nothing("No traffic", "No gateway reported any traffic.")
    span = span_of(traffic)
    tables = {
        name: used(traffic[traffic["group"] == name], span, _MOST_INTERVALS) for name in every
    }
    wanted = [(name, ways, share) for name in every for ways, share in _ways(tables[name])]
    # If there are too many panels, those without a shared link are left out first.
    wanted = sorted(sorted(wanted, key=lambda panel: not panel[2])[:MOST_PANELS],
                    key=lambda panel: every.index(panel[0]))  # fmt: skip
    figure, all_axes = panels([name for name, _, _ in wanted], len(wanted))
    start = account.run.started_at
    size, unit = _time_unit(span[1] - start)
    for axes, (name, ways, share) in zip(all_axes, wanted, strict=True):
        _use(axes, tables[name], ways, share, start, size)
        style.tidy(axes, f"{drawable(clean(name))}: {_use_finding(tables[name], ways, share)}")
        _mark_rounds(axes, account.rounds, start, size)
        _scale(axes, tables[name], ways, share)
    all_axes[-1].set_xlabel(f"{unit} since the run started", color=style.MUTED, fontsize=9.5)
    all_axes[-1].set_xlim(*((edge - start) / size for edge in span))
    key(figure, [
        Patch(facecolor=style.LIGHT, label="up"),
        Line2D([], [], color=style.INK, linewidth=1.2, label="down"),
        Line2D([], [], color=style.ORANGE, linewidth=0.8, alpha=0.5, label="a round opens"),
    ])  # fmt: skip
    return figure


def _ways(table: pd.DataFrame) -> list[tuple[list[str], bool]]:
    """The panels of a group: the directions with a shared link, and those without."""
    shared = [way for way in DIRECTIONS if table[way].notna().any()]
    free = [way for way in DIRECTIONS if way not in shared and table[f"{way}_bps"].notna().any()]
    return [(ways, share) for ways, share in ((shared, True), (free, False)) if ways]


def _use(
    axes: Axes, table: pd.DataFrame, ways: Sequence[str], share: bool, start: float, size: float
) -> None:
    edges = (np.append(table["begin"], table["end"].iloc[-1]) - start) / size
    divide = 1.0 if share else _rate_size(table, ways)
    if "up" in ways:
        levels = table["up" if share else "up_bps"] / divide
        axes.stairs(levels, edges, fill=True, color=style.LIGHT, linewidth=0)
    if "down" in ways:
        levels = table["down" if share else "down_bps"] / divide
        axes.stairs(levels, edges, baseline=None, color=style.INK, linewidth=1.0)


def _scale(axes: Axes, table: pd.DataFrame, ways: Sequence[str], share: bool) -> None:
    if share:
        most = float(table[list(ways)].max().max())
        axes.set(ylim=(0, max(1.02, min(1.02 * most, 1.5))), yticks=(0, 0.5, 1))
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, symbol=" %"))
        return
    size = _rate_size(table, ways)
    most = float(table[[f"{way}_bps" for way in ways]].max().max()) / size
    axes.set_ylim(0, 1.05 * most if most > 0 else 1.0)
    axes.yaxis.set_major_locator(MaxNLocator(3))
    axes.set_ylabel(rate_unit(size)[1], color=style.MUTED, fontsize=9.5)


def _rate_size(table: pd.DataFrame, ways: Sequence[str]) -> float:
    return rate_unit(float(table[[f"{way}_bps" for way in ways]].max().max()))[0]


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


def _mark_rounds(axes: Axes, rounds: pd.DataFrame, start: float, size: float) -> None:
    opened = rounds["opened_at"].dropna()
    for moment in opened.iloc[:: math.ceil(len(opened) / _MOST_ROUND_MARKS) or 1]:
        axes.axvline((moment - start) / size, color=style.ORANGE, linewidth=0.8, alpha=0.5,
                     zorder=0)  # fmt: skip


def _time_unit(seconds: float) -> tuple[float, str]:
    for size, unit in ((3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 3 * size:
            return size, unit
    return 1.0, "seconds"
