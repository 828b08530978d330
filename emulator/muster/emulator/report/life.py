"""The charts of simulated device state: reasons of failed calls, and battery charge."""

from collections.abc import Mapping
from types import MappingProxyType

import pandas as pd

from muster.emulator.records.account import Account
from muster.emulator.records.summary import clean, percent_text
from muster.emulator.report.call_map import KINDS
from muster.emulator.report.chart import SHARE, Chart, Layer, course, line
from muster.emulator.report.losses import what_counts
from muster.emulator.report.timeline import Timeline, bins_for, most_called

REASONS: Mapping[str, str] = MappingProxyType(
    {
        "folded": "blue",
        "not charging": "sand",
        "battery": "amber",
        "metered": "green",
        "busy": "purple",
        "unwilling": "sky",
        "no gain": "forest",
        "offline": KINDS["not reached"],
        "absent": "faint",
        "drop-out": "orange",
        "interrupted": "brown",
        "powered off": "ink",
        "deadline": "navy",
        "other": "muted",
    }
)
"""The reasons that the chart shows, from bottom to top, with their colours."""

_FEW = 3
_RECENT_BINS = 2


def reasons(account: Account) -> list[Chart]:
    """Shares of calls by outcome or reason over time, for each group."""
    calls = account.calls
    calls = calls[calls["group"].isin(mixed_groups(calls))]
    groups = most_called(calls["group"])
    if not groups:
        return []
    timeline = Timeline.of(account, bins_for(len(calls), len(groups)))
    found, of = reasons_of(calls), what_counts(account)
    drawn = found.where(found.isin([*REASONS]), "other")
    counts = pd.crosstab([calls["group"], timeline.bins_of(calls["round"])], drawn)
    return [
        timeline.chart(
            _reasons_finding(group, found[calls["group"] == group], of),
            _stack(counts.loc[[group]].droplevel(0), timeline),
            SHARE,
        )
        for group in groups
    ]


def reasons_of(calls: pd.DataFrame) -> pd.Series:
    """Folded, absent, the given reason or else the fate, for every row of `Account.calls`."""
    fate = calls["fate"].astype("string")
    return fate.where(fate.isin(["folded", "absent"]), calls["reason"].fillna(fate))


def mixed_groups(calls: pd.DataFrame) -> list[str]:
    """The groups whose calls ended in more than one way; the others need no panel."""
    ways = reasons_of(calls).groupby(calls["group"], observed=True).nunique()
    return list(ways.index[ways > 1])


def batteries(account: Account) -> list[Chart]:
    """Battery charge over time, for each group with batteries."""
    calls = charges(account)
    calls = calls[calls["group"].isin(charging_groups(calls))]
    groups = most_called(calls["group"])
    if not groups:
        return []
    timeline = Timeline.of(account, bins_for(len(calls), len(groups)))
    return [_charge(group, calls[calls["group"] == group], timeline) for group in groups]


def _charge(group: str, calls: pd.DataFrame, timeline: Timeline) -> Chart:
    levels = _levels(calls, timeline)
    low, median, high = (levels.quantile(share, axis="columns") for share in (0.1, 0.5, 0.9))
    layers = [line("filled", timeline.edges, high, "light", "10th to 90th percentile", low=low,
                   opacity=0.5)]  # fmt: skip
    for place, client in enumerate(calls["client"].value_counts().index[:_FEW]):
        one = calls[calls["client"] == client]
        # A level begins with its round.
        level = pd.Series(one["battery"].to_numpy(), timeline.places(one["round"]))
        layers.append(course(level, "muted", "" if place else "single devices", width=0.6))
    layers.append(line("levels", timeline.edges, median, "blue", "median", width=2.0))
    least, most = percent_text(median.min()), percent_text(median.max())
    title = f"{clean(group)}: median charge between {least} and {most}"
    return timeline.chart(title, layers, SHARE)


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


def _levels(calls: pd.DataFrame, timeline: Timeline) -> pd.DataFrame:
    """The newest charge of each device by bin, unless it is too old.

    Devices that were not called in a bin keep their last charge for a few bins. Otherwise, the
    median of a small group would jump with the selection of the called devices.
    """
    bins = pd.Series(timeline.bins_of(calls["round"]), calls.index)
    newest = calls["battery"].groupby([bins, calls["client"]], observed=True).last().unstack()
    return newest.reindex(range(timeline.bins)).ffill(limit=_RECENT_BINS)


def _stack(counts: pd.DataFrame, timeline: Timeline) -> list[Layer]:
    """Stacked areas in the order of REASONS, with a gap where there was no call."""
    counts = counts.reindex(range(timeline.bins), fill_value=0)
    total = counts.sum(axis="columns")
    shares = counts.div(total.where(total > 0), axis="index")
    tops = shares.reindex(columns=[*REASONS], fill_value=0).cumsum(axis="columns")
    lows = tops.shift(1, axis="columns", fill_value=0.0)
    return [
        line("filled", timeline.edges, tops[name], colour, name, low=lows[name])
        for name, colour in REASONS.items()
        if name in counts and counts[name].any()
    ]


def _reasons_finding(group: str, reasons: pd.Series, of: str) -> str:
    shares = reasons.value_counts(normalize=True)
    folded = f"{clean(group)}: {percent_text(shares.get('folded', 0.0))} of {of} folded"
    rest = shares.drop("folded", errors="ignore")
    why, share = clean(str(rest.index[0])), percent_text(rest.iloc[0])
    return f"{folded}; the most frequent reason: {why}, {share}"
