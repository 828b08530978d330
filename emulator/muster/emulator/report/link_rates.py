"""The figure of the rate of every transfer beside the rate of its link."""

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from muster.emulator.records.account import Account
from muster.emulator.records.summary import clean
from muster.emulator.report import style
from muster.emulator.report.hours import MOST_TICKS
from muster.emulator.report.links import DIRECTIONS, moves_in, rate_unit
from muster.emulator.report.names import drawable
from muster.emulator.report.timeline import (
    Timeline,
    bins_for,
    key,
    most_called,
    note_left_out,
    nothing,
)

_MOST_DOTS, _DOTS_WIDE = 2000, 0.8
_MANY_DOTS = 200
_PANEL_IN, _AROUND_IN = 1.75, 0.75


def rates(account: Account) -> Figure:
    """The achieved rate of every transfer and the rate of its link, by group and direction."""
    every = moves_in(account)
    moves = every[every["rate_bps"].gt(0) & every["round"].isin(account.rounds["round"])]
    groups = most_called(moves["group"])
    if not groups:
        return nothing("No transfer", "No transfer in chunks took any time.")
    ways = [way for way in DIRECTIONS if (moves["direction"] == way).any()]
    figure = style.new_figure(_AROUND_IN + _PANEL_IN * len(groups))
    grid = figure.subplots(len(groups), len(ways), sharex=True, squeeze=False)
    line = Timeline.of(account, bins_for(len(moves), len(groups) * len(ways)))
    for row, group in zip(grid, groups, strict=True):
        for axes, way in zip(row, ways, strict=True):
            here = moves[(moves["group"] == group) & (moves["direction"] == way)]
            _panel(axes, here, line, f"{drawable(clean(group))} {way}")
    for axes in grid[-1]:
        line.label(axes, MOST_TICKS // len(ways))
    if (count := moves["group"].nunique()) > len(groups):
        note_left_out(figure, len(groups), count)
    key(figure, [
        Line2D([], [], color=style.BLUE, marker="o", markersize=3, linewidth=0,
               label="a transfer"),
        Line2D([], [], color=style.INK, linewidth=1.2, label="its link"),
        Line2D([], [], color=style.ORANGE, linewidth=1.5, label="fair share of the shared link"),
    ])  # fmt: skip
    return figure


def _panel(axes: Axes, moves: pd.DataFrame, line: Timeline, name: str) -> None:
    if moves.empty:
        style.say(axes, f"{name}: none", "Nothing was transferred.")
        return
    bins = line.bins_of(moves["round"])
    levels = moves[["own_bps", "fair_bps"]].groupby(bins).median().reindex(range(line.bins))
    stated, part = float(moves["own_bps"].median()), float(levels["fair_bps"].max())
    # A few transfers are faster than their link because a buffer took all their bytes at once.
    median = float(moves["rate_bps"].median())
    high = min(moves["rate_bps"].quantile(0.98), 3 * np.fmax(median, stated))
    usual = np.fmax(high, stated)
    top = 1.12 * float(np.fmax(usual, part) if part < 2 * usual else usual)
    size, unit = rate_unit(top)
    shown = moves.iloc[:: math.ceil(len(moves) / _MOST_DOTS)]
    many = len(shown) > _MANY_DOTS
    axes.plot(_places(moves, line)[shown.index], np.minimum(shown["rate_bps"], top) / size, "o",
              color=style.BLUE, markersize=2.2 if many else 3.2, markeredgewidth=0,
              alpha=0.35 if many else 0.7, clip_on=False)  # fmt: skip
    for column, colour, width in (("own_bps", style.INK, 1.2), ("fair_bps", style.ORANGE, 1.5)):
        drawn = levels[column].where(levels[column] <= top) / size
        axes.stairs(drawn, line.edges, baseline=None, color=colour, linewidth=width)
    against = f"of {stated / size:.3g} {unit}" if math.isfinite(stated) else f"{unit}, no limit"
    style.tidy(axes, f"{name}: median {median / size:.3g} {against}", y=unit)
    axes.title.set_fontsize(9.5)
    axes.set_ylim(0, top / size)
    axes.yaxis.set_major_locator(MaxNLocator(4))


def _places(moves: pd.DataFrame, line: Timeline) -> pd.Series:
    """The horizontal position of each transfer: side by side in its round, in order of time."""
    by_round = moves.groupby("round")["asked"]
    rank, count = by_round.rank(method="first"), by_round.transform("size")
    share = 0.5 + _DOTS_WIDE * ((rank - 0.5) / count - 0.5)
    return pd.Series(line.places(moves["round"], share), moves.index)
