"""The charts of planned and measured updates of each group."""

import pandas as pd

from muster.emulator.records.account import Account
from muster.emulator.records.summary import clean
from muster.emulator.report.chart import MOST_PANELS, Axis, Chart, line
from muster.emulator.report.timeline import Timeline

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


def planned(account: Account) -> list[Chart]:
    """Planned and measured updates over rounds, for each group."""
    table = compared(account)
    groups = varied_groups(table)[:MOST_PANELS] if len(table) else []
    if not groups:
        return []
    timeline = Timeline.of(account, _MOST_BINS)
    return [_of_group(table, group, timeline) for group in groups]


def _of_group(table: pd.DataFrame, group: str, timeline: Timeline) -> Chart:
    rows = table[table.index.get_level_values("group") == group].droplevel("group")
    total = rows[["planned", "measured"]].sum()
    bins = timeline.bins_of(rows.index.to_series())
    means = rows.groupby(bins).mean().reindex(range(timeline.bins))
    edges = timeline.edges
    layers = [
        line("levels", edges, means["measured"], "light", "measured", width=4.5),
        line("levels", edges, means["planned"], "ink", "planned", width=1.2, dashed=True),
    ]
    title = f"{clean(group)}: {_finding(total['planned'], total['measured'])}"
    return timeline.chart(title, layers, Axis("updates per round", low=0.0))


def varied_groups(table: pd.DataFrame) -> list[str]:
    """The groups whose planned or measured updates differ between rounds.

    Args:
        table: from `compared`.
    """
    values = table[["planned", "measured"]].groupby(level="group", sort=False).nunique()
    return [str(group) for group in values.index[(values > 1).any(axis="columns")]]


def same_in_all_rounds(table: pd.DataFrame) -> list[str]:
    """Sentences on the groups that the charts leave out.

    Args:
        table: from `compared`.
    """
    others = table.drop(index=varied_groups(table), level="group")
    firsts = others.groupby(level="group", sort=False)[["planned", "measured"]].first()
    return [
        f"{clean(str(group))}, in every round: {_finding(row['planned'], row['measured'])}."
        for group, row in firsts.iterrows()
    ]


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
