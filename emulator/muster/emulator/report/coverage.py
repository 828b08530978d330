"""Coverage: the section, and the charts of the coordinates that updates have, in runs whose devices
train parts of the model."""

import pandas as pd

from muster.emulator.records.account import Account
from muster.emulator.records.summary import bytes_text, clean, number_text, percent_text
from muster.emulator.report import chart
from muster.emulator.report.chart import Axis, Chart
from muster.emulator.report.section import ReportSection, ReportTable, Summary

COVERAGE = "coverage"
"""Name of the estimates of a round's coverage."""


def by_round(account: Account) -> pd.DataFrame:
    """The coverage of every round that made a version, by round, with the columns `share`,
    `updates` and `largest_psi`; empty unless devices train parts of the model."""
    found = account.estimates
    rows = found[found["name"] == COVERAGE].astype({"key": str})
    columns = rows.pivot_table(index="round", columns="key", values="value", observed=True)
    return columns.reindex(columns=["share", "updates", "largest_psi"])


def section(account: Account, summary: Summary) -> ReportSection | None:
    """The figure, and a row for each group; None if all devices train the whole model."""
    covered = by_round(account)
    if covered.empty:
        return None
    groups = account.clients.set_index("client")["group"]
    sent = account.contributions
    whole = sent[sent["outcome"] == "folded"]
    of_group = whole["client"].map(groups)
    rows = []
    for group in groups.drop_duplicates():
        mine = whole[of_group == group]
        parts = mine["mask_ratio"]
        rows.append(
            [clean(group), f"{len(mine):,}", percent_text(parts.mean() if len(mine) else None),
             bytes_text(mine["bytes_up"].mean()) if len(mine) else "–",
             bytes_text(mine["bytes_saved"].sum())]
        )  # fmt: skip
    columns = ["group", "updates folded", "mean part of the model", "mean bytes of an update",
               "saved by masks and compression"]  # fmt: skip
    text = (
        "Devices trained parts of the model. A coordinate that no update has keeps its value. ψ is "
        "the factor by which the mean over all updates is multiplied to get the mean over those "
        "that have the coordinate. If ψ is large, few updates decide on a coordinate."
    )
    drawn = COVERAGE if _panels(covered) else ""
    if not drawn:
        text += f" In every round, {_share(covered)}. {_updates(covered)}."
    return ReportSection(
        "Coverage of the model", text, figure=drawn, table=ReportTable(columns, rows)
    )


def _panels(covered: pd.DataFrame) -> list[str]:
    """The columns that the figure shows: those that differ between rounds."""
    return [name for name in ("share", "updates") if covered[name].nunique() > 1]


def _share(covered: pd.DataFrame) -> str:
    return f"updates covered {percent_text(covered['share'].mean())} of the coordinates"


def _updates(covered: pd.DataFrame) -> str:
    return (
        f"A coordinate was in {number_text(covered['updates'].mean())} updates on average, and the "
        f"largest ψ was {number_text(covered['largest_psi'].max())}"
    )


def charts(account: Account) -> list[Chart]:
    """Share of the coordinates that updates have, and updates per coordinate, by round; without
    what is the same in every round."""
    covered = by_round(account)
    return [_course(covered, name) for name in _panels(covered)]


def _course(covered: pd.DataFrame, name: str) -> Chart:
    if name == "share":
        worst = percent_text(covered["share"].min())
        title = f"On average, {_share(covered)}; at worst {worst}"
        y = Axis("share of coordinates", "percent", 0.0, 1.05)
    else:
        title, y = _updates(covered), Axis("updates per coordinate", low=0.0)
    return chart.over_rounds(title, [chart.by_round(covered[name], "blue")], y)
