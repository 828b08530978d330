"""Rational devices: who stays and who leaves, and the accuracies that they compared."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from muster.emulator.records.account import Account
from muster.emulator.records.summary import clean, percent_text
from muster.emulator.report import style
from muster.emulator.report.section import ReportSection, ReportTable, Summary
from muster.emulator.report.timeline import nothing

MOST_DEVICES = 50
"""Devices in the table; those that declined most often come first."""

_ACCEPTED = ("accept", "abort")
_QUARTILES = (0.25, 0.75)


def judgements(account: Account) -> pd.DataFrame:
    """The valuations of rational devices with `accepts`, by round and client; empty without any."""
    answers = account.answers
    decided = answers[["round", "client"]].assign(accepts=answers["decision"].isin(_ACCEPTED))
    return account.valuations.merge(decided, on=["round", "client"])


def departures(found: pd.DataFrame) -> pd.DataFrame:
    """A row for each rational device, in the order of their names.

    Args:
        found: `judgements`.

    Returns:
        By `client`: `judged` and `accepted` calls; `left`, the first of the calls that it has
        declined one after the other until the end, NaN if it accepted its last one; and its newest
        `received_accuracy` and `own_accuracy`.
    """
    by_client = found.sort_values("round").groupby("client")
    rows = by_client.agg(
        judged=("accepts", "size"),
        accepted=("accepts", "sum"),
        received_accuracy=("received_accuracy", "last"),
        own_accuracy=("own_accuracy", "last"),
    )
    last = found[found["accepts"]].groupby("client")["round"].max()
    # With pyarrow, pandas would give <NA> for those that never accepted, which no round follows.
    after = found[~(found["round"] <= found["client"].map(last).astype("float64"))]
    return rows.assign(left=after.groupby("client")["round"].min().reindex(rows.index))


def section(account: Account, summary: Summary) -> ReportSection | None:
    found = judgements(account)
    if found.empty:
        return None
    rows = departures(found).sort_values(["accepted", "client"])
    gone = int(rows["left"].notna().sum())
    facts = [
        ("calls accepted", percent_text(found["accepts"].mean())),
        ("away at the end", f"{gone:,} of {len(rows):,}"),
        ("received model better than their own", percent_text(_gaining(found))),
    ]
    text = (
        "Rational devices measure the received model and their own on validation examples, and "
        "leave if it is no use to them (`groups.participation.utility`). A device that left is "
        "called again, and may come back. Whatever rule a device follows, the third number says "
        "how often the received model was better than its own (equation 1 in docs/rational.md)."
    )
    cells = [
        [
            clean(row["client"]), f"{row['accepted']:,} of {row['judged']:,}",
            "" if np.isnan(row["left"]) else f"round {int(row['left']):,}",
            percent_text(row["received_accuracy"]), percent_text(row["own_accuracy"]),
        ]
        for row in rows.reset_index().to_dict("records")
    ]  # fmt: skip
    columns = ["device", "accepted", "away since", "accuracy of the received model", "of its own"]
    more = len(cells) - MOST_DEVICES
    note = "Accuracies are those of the last call, on the device's own validation examples."
    if more > 0:
        note += f" {more:,} devices that accepted more often are in ledger.sqlite."
    table = ReportTable(columns, cells[:MOST_DEVICES], note)
    return ReportSection("Who stays, and who leaves", text, facts, "willingness", table)


def left_behind(account: Account) -> list[str]:
    """Sentences on the rational devices that were away at the end, and why; none without any."""
    found = judgements(account)
    if found.empty:
        return []
    rows = departures(found)
    gone = rows[rows["left"].notna()]
    if gone.empty:
        return ["At the end, no rational device was away."]
    examples = account.clients.set_index("client")["examples"].astype("float64")
    share = examples.reindex(gone.index).sum() / examples.reindex(rows.index).sum()
    held = "" if np.isnan(share) else f", with {percent_text(share)} of their training examples"
    last = account.clients.set_index("client")["group"].reindex(gone.index)
    groups = ", ".join(
        f"{count:,} of {clean(g)}" for g, count in last.value_counts(sort=False).items()
    )
    away = (
        f"At the end, {len(gone):,} of {len(rows):,} rational devices were away{held} ({groups}). "
        f"The model represents them only by what they sent before."
    )
    better = (gone["own_accuracy"] - gone["received_accuracy"]).median()
    if better > 0:
        why = (
            f"The reason is their own model: for half of those that are away it is better by at "
            f"least {100 * better:.1f} points of accuracy on their validation examples."
        )
    else:
        why = (
            "For half of those that are away, their own model is no better than the received one: "
            "what keeps them away is the rule that they follow."
        )
    return [away, why]


def willingness(account: Account) -> Figure:
    """Devices that accept by round, and the accuracies that they compare."""
    found = judgements(account)
    if found.empty:
        return nothing("No rational device", "No device judged a model.")
    figure = style.new_figure(5.6)
    top, bottom = figure.subplots(2, 1, sharex=True)
    _decisions(top, found)
    _accuracies(bottom, found)
    style.count(bottom.xaxis)
    return figure


def _decisions(axes: Axes, found: pd.DataFrame) -> None:
    """Draw judging and accepting devices as bars, and those with a gain as a line."""
    by_round = found.groupby("round")
    counts = pd.DataFrame(
        {"judged": by_round["accepts"].size(), "accepted": by_round["accepts"].sum()}
    )
    size = style.bars(axes, counts, {"judged": style.PALE, "accepted": style.BLUE})
    gains = by_round["gains"].sum(min_count=1).astype("float64")
    if gains.notna().any():
        style.by_round(axes, gains, color=style.ORANGE, linewidth=1.6,
                       label="received model better than their own")  # fmt: skip
    first, last = (int(counts["accepted"].iloc[place]) for place in (0, -1))
    title = f"{first:,} devices accepted in round {counts.index[0]:,}, {last:,} in the last one"
    unit = "devices" if size == 1 else f"devices (means of {size} rounds)"
    style.tidy(axes, title, "", unit, key=True)
    style.count(axes.yaxis, 5)
    style.key_above(axes)


def _accuracies(axes: Axes, found: pd.DataFrame) -> None:
    """Draw the median accuracy of received and own models, and the middle half of the devices."""
    for column, colour, name in (
        ("received_accuracy", style.ORANGE, "received model"),
        ("own_accuracy", style.INK, "own model"),
    ):
        values = found.groupby("round")[column]
        low, high = (values.quantile(share).dropna() for share in _QUARTILES)
        if low.empty:
            continue
        axes.fill_between(low.index, low, high, color=colour, alpha=0.15, linewidth=0)
        style.course(axes, values.median().dropna(), color=colour, linewidth=1.6, label=name)
    medians = found.groupby("round")[["received_accuracy", "own_accuracy"]].median().iloc[-1]
    received, own = (percent_text(value) for value in medians)
    style.tidy(axes, f"Median accuracy in the last round: {received} received, {own} own",
               "round", "accuracy", key=True)  # fmt: skip
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, symbol=" %"))
    style.key_above(axes)


def _gaining(found: pd.DataFrame) -> float | None:
    gains = found["gains"].astype("float64").mean()
    return None if np.isnan(gains) else float(gains)
