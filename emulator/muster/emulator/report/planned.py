"""The figure of planned and measured updates of each group."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from muster.emulator.records.account import Account
from muster.emulator.records.summary import clean
from muster.emulator.report import style
from muster.emulator.report.names import drawable
from muster.emulator.report.timeline import MOST_PANELS, Timeline, key, nothing, panels

PLAN = "plan.csv"

_MOST_BINS = 120
_SAME = 0.05  # updates; on the wall clock, plans are expectations and not whole numbers


def compared(account: Account) -> pd.DataFrame:
    """The plan's rows for rounds that were committed, indexed by group and round.

    Columns: `enrolled` devices; `planned` updates; and, from the run, `called` devices and
    `measured` devices, which accepted and did not give up. Empty without a plan, or a round.
    """
    path = account.folder / PLAN
    if not path.exists():
        return pd.DataFrame()
    plan = pd.read_csv(path, dtype={"group": "string"}, keep_default_na=False)
    rows = plan[plan["round"].isin(account.rounds["round"])]
    if rows.empty:
        return pd.DataFrame()
    calls = account.calls[account.calls["fate"] != "absent"]
    kept = ~calls["fate"].isin(["declined", "gave up"])
    found = kept.groupby([calls["group"].astype("string"), calls["round"]]).agg(["size", "sum"])
    planned = rows.set_index(["group", "round"])[["enrolled", "delivered"]]
    both = planned.join(found, on=["group", "round"])
    names = {"delivered": "planned", "size": "called", "sum": "measured"}
    return both.rename(columns=names).fillna(0)


def planned(account: Account) -> Figure:
    """Planned and measured updates over rounds, for each group."""
    table = compared(account)
    if table.empty:
        return nothing("No plan", "There is no plan for the rounds that were committed.")
    every = varied_groups(table)
    if not every:
        return nothing("No difference", "Each group has the same updates in all rounds.")
    groups = every[:MOST_PANELS]
    figure, axes = panels(groups, len(every))
    line = Timeline.of(account, _MOST_BINS)
    for panel, group in zip(axes, groups, strict=True):
        of_group = table[table.index.get_level_values("group") == group].droplevel("group")
        _courses(panel, of_group, line)
        total = of_group[["planned", "measured"]].sum()
        name = drawable(clean(group))
        style.tidy(panel, f"{name}: {_finding(total['planned'], total['measured'])}")
        style.count(panel.yaxis, 3)
        panel.set_ylim(0, None)
    line.label(axes[-1])
    axes[len(axes) // 2].set_ylabel("updates per round", color=style.MUTED, fontsize=9.5)
    key(figure, [
        Line2D([], [], color=style.LIGHT, linewidth=4.5, label="measured"),
        Line2D([], [], color=style.INK, linewidth=1.2, linestyle="--", label="planned"),
    ])  # fmt: skip
    return figure


def varied_groups(table: pd.DataFrame) -> list[str]:
    """The groups whose planned or measured updates differ between rounds.

    Args:
        table: from `compared`.
    """
    values = table[["planned", "measured"]].groupby(level="group", sort=False).nunique()
    return [str(group) for group in values.index[(values > 1).any(axis="columns")]]


def same_in_all_rounds(table: pd.DataFrame) -> list[str]:
    """Sentences on the groups that the figure leaves out.

    Args:
        table: from `compared`.
    """
    others = table.drop(index=varied_groups(table), level="group")
    firsts = others.groupby(level="group", sort=False)[["planned", "measured"]].first()
    return [
        f"{clean(str(group))}, in every round: {_finding(row['planned'], row['measured'])}."
        for group, row in firsts.iterrows()
    ]


def _courses(axes: Axes, rows: pd.DataFrame, line: Timeline) -> None:
    means = rows.groupby(line.bins_of(rows.index.to_series())).mean().reindex(range(line.bins))
    axes.stairs(means["measured"], line.edges, baseline=None, color=style.LIGHT, linewidth=4.5)
    axes.stairs(means["planned"], line.edges, baseline=None, color=style.INK, linewidth=1.2,
                linestyle="--")  # fmt: skip


def _finding(planned: float, measured: float) -> str:
    updates = "update" if measured == 1 else "updates"
    if abs(measured - planned) < _SAME:
        return f"{amount(measured)} {updates}, as planned"
    more = "more" if measured > planned else "fewer"
    difference, of = amount(abs(measured - planned)), amount(planned)
    return f"{amount(measured)} {updates}, {difference} {more} than the {of} planned"


def amount(count: float) -> str:
    """A number of updates as text, with one decimal if it is not whole."""
    return f"{count:,.0f}" if count == round(count) else f"{count:,.1f}"
