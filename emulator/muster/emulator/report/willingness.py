"""Rational devices: who stays and who leaves, and the accuracies that they compared."""

from dataclasses import replace

import numpy as np
import pandas as pd

from muster.emulator.records.account import Account
from muster.emulator.records.summary import clean, percent_text
from muster.emulator.report import chart
from muster.emulator.report.chart import Axis, Chart
from muster.emulator.report.section import ReportSection, ReportTable, Summary

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


def willingness(account: Account) -> list[Chart]:
    """Devices that accept by round, and the accuracies that they compare."""
    found = judgements(account)
    return [] if found.empty else [_decisions(found), _accuracies(found)]


def _decisions(found: pd.DataFrame) -> Chart:
    """Judging and accepting devices as bars, and those with a gain as a line."""
    rounds = found.groupby("round")
    counts = pd.DataFrame({"judged": rounds["accepts"].size(), "accepted": rounds["accepts"].sum()})
    layers, size = chart.bars(counts, {"judged": "pale", "accepted": "blue"})
    gains = rounds["gains"].sum(min_count=1).astype("float64")
    if gains.notna().any():
        layers.append(chart.by_round(gains, "orange", "received model better than their own"))
    first, last = (int(counts["accepted"].iloc[place]) for place in (0, -1))
    title = f"{first:,} devices accepted in round {counts.index[0]:,}, {last:,} in the last one"
    y = Axis(f"devices{chart.means_of(size)}", "count", 0.0)
    return chart.over_rounds(title, layers, y, chart.round_axis(counts.index))


def _accuracies(found: pd.DataFrame) -> Chart:
    """The median accuracy of received and own models, and the middle half of the devices."""
    layers = []
    for column, colour, name in (
        ("received_accuracy", "orange", "received model"),
        ("own_accuracy", "ink", "own model"),
    ):
        values = found.groupby("round")[column]
        low, high = (values.quantile(share).dropna() for share in _QUARTILES)
        if low.empty:
            continue
        lower = chart.by_round(low, colour).y
        band = chart.by_round(high, colour, kind="filled", opacity=0.15)
        layers += [replace(band, low=lower), chart.course(values.median().dropna(), colour, name)]
    medians = found.groupby("round")[["received_accuracy", "own_accuracy"]].median().iloc[-1]
    received, own = (percent_text(value) for value in medians)
    title = f"Median accuracy in the last round: {received} received, {own} own"
    return chart.over_rounds(title, layers, Axis("accuracy", "percent"))


def _gaining(found: pd.DataFrame) -> float | None:
    gains = found["gains"].astype("float64").mean()
    return None if np.isnan(gains) else float(gains)
