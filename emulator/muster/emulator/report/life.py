"""The figures of simulated device state: reasons of failed calls, and battery charge."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from muster.emulator.records.account import Account
from muster.emulator.records.summary import clean, percent_text
from muster.emulator.report import style
from muster.emulator.report.call_map import KINDS
from muster.emulator.report.losses import what_counts
from muster.emulator.report.names import drawable
from muster.emulator.report.timeline import (
    Timeline,
    bins_for,
    key,
    most_called,
    nothing,
    panels,
)

REASONS: Mapping[str, str] = MappingProxyType(
    {
        "folded": style.BLUE,
        "not charging": "#f3d27a",
        "battery": style.AMBER,
        "metered": style.GREEN,
        "busy": "#cc79a7",
        "unwilling": "#7fc4ee",
        "no gain": "#117733",
        "offline": KINDS["not reached"],
        "absent": "#c9d0d7",
        "drop-out": style.ORANGE,
        "interrupted": "#8c3a00",
        "powered off": "#3d2410",
        "deadline": "#332288",
        "other": "#b3a58f",
    }
)
"""The reasons that the figure shows, from bottom to top, with their colours."""

_FEW = 3
_RECENT_BINS = 2


def reasons(account: Account) -> Figure:
    """Shares of calls by outcome or reason over time, for each group."""
    calls = account.calls
    calls = calls[calls["group"].isin(mixed_groups(calls))]
    groups = most_called(calls["group"])
    if not groups:
        return nothing("No difference", "In no group did calls end differently.")
    figure, axes = panels(groups, calls["group"].nunique())
    line = Timeline.of(account, bins_for(len(calls), len(groups)))
    found, of = reasons_of(calls), what_counts(account)
    drawn = found.where(found.isin([*REASONS]), "other")
    counts = pd.crosstab([calls["group"], line.bins_of(calls["round"])], drawn)
    for panel, group in zip(axes, groups, strict=True):
        _stack(panel, counts.loc[[group]].droplevel(0), line)
        style.tidy(panel, _reasons_finding(group, found[calls["group"] == group], of))
        _percent(panel)
    line.label(axes[-1])
    there = [name for name in REASONS if name in counts]
    key(figure, [Patch(facecolor=REASONS[name], label=name) for name in there])
    return figure


def reasons_of(calls: pd.DataFrame) -> pd.Series:
    """Folded, absent, the given reason or else the fate, for every row of `Account.calls`."""
    fate = calls["fate"].astype("string")
    return fate.where(fate.isin(["folded", "absent"]), calls["reason"].fillna(fate))


def mixed_groups(calls: pd.DataFrame) -> list[str]:
    """The groups whose calls ended in more than one way; the others need no panel."""
    ways = reasons_of(calls).groupby(calls["group"], observed=True).nunique()
    return list(ways.index[ways > 1])


def batteries(account: Account) -> Figure:
    """Battery charge over time, for each group with batteries."""
    calls = charges(account)
    calls = calls[calls["group"].isin(charging_groups(calls))]
    groups = most_called(calls["group"])
    if not groups:
        return nothing("No battery", "No device reported a battery that drains.")
    figure, axes = panels(groups, calls["group"].nunique())
    line = Timeline.of(account, bins_for(len(calls), len(groups)))
    for panel, group in zip(axes, groups, strict=True):
        of_group = calls[calls["group"] == group]
        levels = _levels(of_group, line)
        low, median, high = (levels.quantile(share, axis="columns") for share in (0.1, 0.5, 0.9))
        panel.stairs(high, line.edges, baseline=low, fill=True, color=style.LIGHT, alpha=0.5,
                     linewidth=0)  # fmt: skip
        for client in of_group["client"].value_counts().index[:_FEW]:
            one = of_group[of_group["client"] == client]
            # A level begins with its round.
            level = one.set_index(pd.Index(line.places(one["round"])))["battery"]
            style.course(panel, level, color=style.MUTED, linewidth=0.6, clip_on=False)
        panel.stairs(median, line.edges, baseline=None, color=style.BLUE, linewidth=2,
                     clip_on=False)  # fmt: skip
        least, most = percent_text(median.min()), percent_text(median.max())
        style.tidy(panel, f"{_name(group)}: median charge between {least} and {most}")
        _percent(panel)
    line.label(axes[-1])
    key(figure, [
        Line2D([], [], color=style.BLUE, linewidth=2, label="median"),
        Patch(facecolor=style.LIGHT, alpha=0.5, label="10th to 90th percentile"),
        Line2D([], [], color=style.MUTED, linewidth=0.8, label="single devices"),
    ])  # fmt: skip
    return figure


def charges(account: Account) -> pd.DataFrame:
    """The calls whose answers reported a battery, in groups with any battery that was not full."""
    calls = account.calls
    least = calls.groupby("group", observed=True)["battery"].min()
    draining = calls["group"].isin(least.index[least < 1])
    # For an absent device, the ledger repeats the last known charge in every round.
    return calls[draining & calls["battery"].notna() & (calls["fate"] != "absent")]


def charging_groups(calls: pd.DataFrame) -> list[str]:
    """The groups in which the charge varies.

    Args:
        calls: from `charges`.
    """
    levels = calls.groupby("group", observed=True)["battery"].nunique()
    return list(levels.index[levels > 1])


def _levels(calls: pd.DataFrame, line: Timeline) -> pd.DataFrame:
    """The newest charge of each device by bin, unless it is too old.

    Devices that were not called in a bin keep their last charge for a few bins. Otherwise, the
    median of a small group would jump with the selection of the called devices.
    """
    bins = pd.Series(line.bins_of(calls["round"]), calls.index)
    newest = calls["battery"].groupby([bins, calls["client"]], observed=True).last().unstack()
    return newest.reindex(range(line.bins)).ffill(limit=_RECENT_BINS)


def _stack(axes: Axes, counts: pd.DataFrame, line: Timeline) -> None:
    """Draw stacked areas in the order of REASONS, and white where there was no call."""
    counts = counts.reindex(range(line.bins), fill_value=0)
    shares = counts.div(counts.sum(axis="columns").clip(lower=1), axis="index")
    tops = shares.reindex(columns=[*REASONS], fill_value=0).cumsum(axis="columns")
    steps = pd.concat([tops, tops.tail(1)]).to_numpy()  # the last bin ends at the last edge
    below = np.zeros(len(steps))
    for above, colour in zip(steps.T, REASONS.values(), strict=True):
        if (above > below).any():
            axes.fill_between(line.edges, below, above, step="post", color=colour, linewidth=0)
        below = above


def _reasons_finding(group: str, reasons: pd.Series, of: str) -> str:
    shares = reasons.value_counts(normalize=True)
    folded = f"{_name(group)}: {percent_text(shares.get('folded', 0.0))} of {of} folded"
    rest = shares.drop("folded", errors="ignore")
    why, share = drawable(clean(str(rest.index[0]))), percent_text(rest.iloc[0])
    return f"{folded}; the most frequent reason: {why}, {share}"


def _name(group: str) -> str:
    return drawable(clean(group))


def _percent(axes: Axes) -> None:
    axes.set(ylim=(0, 1), yticks=(0, 0.5, 1))
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, symbol=" %"))
