"""Coverage: the section, and the figure of the coordinates that updates have, in runs whose devices
train parts of the model."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from muster.emulator.results.account import Account
from muster.emulator.results.report import style
from muster.emulator.results.report.section import ReportSection, ReportTable, Summary
from muster.emulator.results.summary import bytes_text, clean, number_text, percent_text

COVERAGE = "coverage"
"""Name of the estimates of a round's coverage."""

_HEIGHT_IN = 4.6


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
    if len(covered) < 2:
        text += f" In the only round, {_finding(covered)}."
    drawn = COVERAGE if len(covered) > 1 else ""
    return ReportSection(
        "Coverage of the model", text, figure=drawn, table=ReportTable(columns, rows)
    )


def _finding(covered: pd.DataFrame) -> str:
    return f"updates covered {percent_text(covered['share'].mean())} of the coordinates"


def figure(account: Account) -> Figure:
    """Share of the coordinates that updates have, and updates per coordinate, by round."""
    covered = by_round(account)
    drawn = style.new_figure(_HEIGHT_IN)
    above, below = drawn.subplots(2, 1, sharex=True)
    among = f"{_finding(covered)}, in the worst round {percent_text(covered['share'].min())}"
    _course(above, covered["share"], f"On average {among}", "share of coordinates")
    above.set_ylim(0, 1.05)
    largest = number_text(covered["largest_psi"].max())
    finding = f"Mean number of updates per coordinate; the largest ψ was {largest}"
    _course(below, covered["updates"], finding, "updates", "round")
    below.set_ylim(0, None)
    return drawn


def _course(axes: Axes, values: pd.Series, title: str, y: str, x: str = "") -> None:
    rounds = range(int(values.index.min()), int(values.index.max()) + 1)
    style.by_round(axes, values.reindex(rounds), color=style.BLUE, linewidth=1.6)
    style.tidy(axes, title, x, y)
    style.count(axes.xaxis)
