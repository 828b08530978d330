"""Coverage: the section, and the figure of the coordinates that updates have, in runs whose devices
train parts of the model."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from muster.emulator.records.account import Account
from muster.emulator.records.summary import bytes_text, clean, number_text, percent_text
from muster.emulator.report import style
from muster.emulator.report.section import ReportSection, ReportTable, Summary
from muster.emulator.report.timeline import nothing

COVERAGE = "coverage"
"""Name of the estimates of a round's coverage."""

_PANEL_IN = 2.3


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


def figure(account: Account) -> Figure:
    """Share of the coordinates that updates have, and updates per coordinate, by round; without
    what is the same in every round."""
    covered = by_round(account)
    panels = _panels(covered)
    if not panels:
        return nothing("Nothing to show", "The coverage of the model was the same in all rounds.")
    drawn = style.new_figure(_PANEL_IN * len(panels))
    all_axes = drawn.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axes, name in zip(all_axes, panels, strict=True):
        if name == "share":
            worst = percent_text(covered["share"].min())
            _course(axes, covered, name, f"On average, {_share(covered)}; at worst {worst}")
            axes.set_ylim(0, 1.05)
        else:
            _course(axes, covered, name, _updates(covered))
            axes.set_ylim(0, None)
    all_axes[-1].set_xlabel("round", color=style.MUTED, fontsize=9.5)
    return drawn


_LABELS = {"share": "share of coordinates", "updates": "updates per coordinate"}


def _course(axes: Axes, covered: pd.DataFrame, name: str, title: str) -> None:
    rounds = range(int(covered.index.min()), int(covered.index.max()) + 1)
    style.by_round(axes, covered[name].reindex(rounds), color=style.BLUE, linewidth=1.6)
    style.tidy(axes, title, "", _LABELS[name])
    style.count(axes.xaxis)
