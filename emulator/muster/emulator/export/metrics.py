"""The metrics of a run over its rounds, for programs that draw them."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import pandas as pd

from muster.emulator.records.account import Account
from muster.emulator.records.calls import OUTCOMES
from muster.emulator.records.energy import energy_of, totals_of
from muster.emulator.records.parts import metrics_of

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


def metric_points(account: Account) -> list[MetricPoint]:
    """The values of all metrics, by round; those that are missing or not finite are left out."""
    found = (
        *_of_evaluations(account),
        *_of_rounds(account),
        *_of_app(account),
        *_of_energy(account),
    )
    return sorted(
        (point for point in found if _is_finite(point.value)),
        key=lambda point: (point.round, point.name),
    )


def _is_finite(value: Any) -> bool:
    """Whether a value is a finite number; a task may also measure words."""
    return isinstance(value, (int, float)) and math.isfinite(value)


def _of_evaluations(account: Account) -> Iterator[MetricPoint]:
    """Of the model: what the task measures, for all and for the groups."""
    evaluations, groups = account.evaluations, account.group_evaluations
    for row in evaluations.to_dict("records"):
        measured = metrics_of(row["metrics"]) | {name: row[name] for name in ("loss", "accuracy")}
        for name, value in measured.items():
            yield MetricPoint(f"model/{name}", row["round"], value, row["at"])
    for row in groups.merge(evaluations[["version", "at"]], on="version").to_dict("records"):
        measured = metrics_of(row["metrics"]) | {name: row[name] for name in ("loss", "accuracy")}
        for name, value in measured.items():
            yield MetricPoint(f"group {row['group']}/{name}", row["round"], value, row["at"])


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


def _of_energy(account: Account) -> Iterator[MetricPoint]:
    """Of the calls of each round, if the scenario has `[energy]`: joules, those of updates that did
    not count, and grams of CO₂ equivalent."""
    energy = energy_of(account)
    if energy is None:
        return
    closed = dict(zip(account.rounds["round"], account.rounds["closed_at"], strict=True))
    for round, at in closed.items():
        totals = totals_of(energy[energy["round"] == round])
        for name in ("joules", "wasted", "co2e_g"):
            if name in totals:
                yield MetricPoint(f"energy/{name}", round, totals[name], at)


def _of_app(account: Account) -> Iterator[MetricPoint]:
    """What the server side of an app measured of the versions that the rounds made."""
    closed = dict(zip(account.rounds["round"], account.rounds["closed_at"], strict=True))
    for round, name, value in account.app_metrics.itertuples(index=False):
        yield MetricPoint(f"app/{name}", round, value, closed[max(round, 1)])
