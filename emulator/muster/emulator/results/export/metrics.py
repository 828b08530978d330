"""The metrics of a run over its rounds, for programs that draw them."""

import json
import math
from collections.abc import Iterator
from typing import NamedTuple

import pandas as pd

from muster.emulator.results.account import Account
from muster.emulator.results.calls import OUTCOMES

OF_ROUNDS = (
    "called",
    "accepted",
    "effective_size",
    "weight_sum",
    "weight_max",
    "epsilon",
    "scenario_s",
    "seconds",
    "bytes_up",
    "bytes_down",
    "bytes_wasted",
)
"""The columns of `Account.round_totals` that are metrics."""

OF_UPDATES = ("staleness", "examples", "train_s", "transfer_s", "loss")
"""The columns of `contributions` of whose folded rows each round has a mean."""


class MetricPoint(NamedTuple):
    """A value of a metric.

    Attributes:
        name: what it is of, and what it is, with a slash between.
        round: 0 for the initial model.
        at: UNIX seconds at which it was known.
    """

    name: str
    round: int
    value: float
    at: float


def metrics_of(account: Account) -> list[MetricPoint]:
    """All metrics, by round; a value that is missing or not finite is left out."""
    found = (*_of_evaluations(account), *_of_rounds(account))
    return sorted(
        (metric for metric in found if math.isfinite(metric.value)),
        key=lambda metric: (metric.round, metric.name),
    )


def _of_evaluations(account: Account) -> Iterator[MetricPoint]:
    """Of the model: what the task measures, for all and for the groups."""
    times = dict[int, float]()
    for row in account.evaluations.to_dict("records"):
        at = times[row["version"]] = row["at"]
        measured = {"loss": row["loss"], "accuracy": row["accuracy"], **json.loads(row["metrics"])}
        for name, value in measured.items():
            yield MetricPoint(f"model/{name}", row["round"], value, at)
    for row in account.group_evaluations.to_dict("records"):
        for name in ("loss", "accuracy"):
            metric = f"group {row['group']}/{name}"
            yield MetricPoint(metric, row["round"], row[name], times[row["version"]])


def _of_rounds(account: Account) -> Iterator[MetricPoint]:
    """Of the committed rounds: their columns, how many updates had which outcome, and means over
    those that count."""
    rounds, sent = account.round_totals.set_index("round"), account.contributions
    counts = pd.crosstab(sent["round"], sent["outcome"])
    folded = sent[sent["outcome"] == "folded"].groupby("round")[list(OF_UPDATES)].mean()
    tables = {
        "round": rounds[list(OF_ROUNDS)],
        "updates": counts.reindex(index=rounds.index, columns=list(OUTCOMES), fill_value=0),
        "folded updates": folded.reindex(rounds.index),
    }
    for prefix, table in tables.items():
        for name, values in table.astype("float64").items():
            for round, value, at in zip(rounds.index, values, rounds["closed_at"], strict=True):
                yield MetricPoint(f"{prefix}/{name}", round, value, at)
