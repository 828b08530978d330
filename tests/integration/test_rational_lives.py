"""Rational devices with a life: availability, eligibility and willingness decide in this order."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.integration.test_rational_runs import table

from muster.common.config import validate
from muster.emulator.records.account import Account
from muster.emulator.run_audit import audit
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.whole_run import simulate_run

ROUNDS = 12

PARAMETERS = 650
"""Of a softmax model of the digits: 64 pixels and a bias for each of ten labels."""


def scenario(groups: list[dict[str, Any]], **sections: Any) -> Scenario:
    values: dict[str, Any] = {
        "name": "rational-lives",
        "seed": 3,
        "clock": {"round_s": 3600, "starts_at_h": 8},
        "task": {
            "name": "digits",
            "validation_ratio": 0.3,
            "partition": {"kind": "dirichlet", "alpha": 0.3},
        },
        "server": {"rounds": ROUNDS},
        "groups": groups,
    }
    return validate(Scenario, {**values, **sections}, "rational-lives")


def answers_of(folder: Path) -> pd.DataFrame:
    with Account(folder) as account:
        return account.answers.set_index(["round", "client"]).sort_index()


@pytest.mark.parametrize("aggregator", ["fedavg", "feduca"])
def test_a_model_is_judged_by_devices_that_are_available_eligible_and_willing(
    tmp_path: Path, aggregator: str
) -> None:
    # On mains nothing in these lives depends on what a device did, so that compliant devices show
    # who is reached, may, wants to, and fails.
    life: dict[str, Any] = {
        "name": "phones",
        "count": 8,
        "availability": {"kind": "bernoulli", "probability": 0.8},
        "device": {"connectivity": {"kind": "mobile"}},
    }
    rules = {"require": ["unmetered"], "willing": 0.8, "drop_out": 0.2}
    found = {}
    for kind in ("compliant", "rational"):
        participation = {"kind": kind, **rules}
        rule = aggregator if kind == "rational" else "fedavg"
        groups = [{**life, "participation": participation}]
        read = scenario(groups, server={"rounds": ROUNDS, "aggregator": rule})
        assert simulate_run(read, tmp_path / kind) == "completed"
        found[kind] = answers_of(tmp_path / kind)
    compliant, rational = found["compliant"], found["rational"]
    no_gain = rational["reason"].fillna("") == "no gain"
    assert set(compliant["reason"].dropna()) == {"offline", "metered", "unwilling", "drop-out"}
    for column in ("decision", "reason"):
        pd.testing.assert_series_equal(rational[~no_gain][column], compliant[~no_gain][column])
    assert set(compliant["decision"][no_gain]) == {"accept", "abort"}, "a device without gain fails"
    rows = table(tmp_path / "rational", "valuations").set_index(["round", "client"]).sort_index()
    judged = compliant.index[compliant["decision"] != "decline"]
    assert list(rows.index) == list(judged)
    asked = rows[rows["forced"] == 0]
    assert (no_gain[asked.index] == (asked["gains"] == 0)).all()
    assert not no_gain[rows.index[rows["forced"] == 1]].any()


def test_a_device_that_was_away_reports_its_last_curve_until_it_knows_its_part(
    tmp_path: Path,
) -> None:
    group = {
        "name": "silo",
        "count": 5,
        "availability": {"kind": "bernoulli", "probability": 0.6},
        "participation": {"kind": "rational", "utility": {"test": "always"}},
    }
    server = {"rounds": ROUNDS, "aggregator": {"kind": "feduca", "strategies": 2}}
    read = scenario([group], server=server)
    assert simulate_run(read, tmp_path) == "completed"
    rows = table(tmp_path, "valuations")
    versions = table(tmp_path, "rounds").set_index("round")["base_version"]
    fresh = []
    for _, calls in rows.groupby("client"):
        last: Any = None
        in_order: list[Any] = list(calls.sort_values("round").itertuples())
        for row in in_order:
            version = versions[row.round]
            known = version == 0 if last is None else version - versions[last.round] <= 1
            curve = row.a, row.b, row.c, row.threshold
            before = (np.nan,) * 4 if last is None else (last.a, last.b, last.c, last.threshold)
            assert known != np.array_equal(curve, before, equal_nan=True)
            fresh.append(known)
            last = row
    assert 5 < sum(fresh) < len(fresh) - 5


def test_an_expensive_link_raises_what_a_device_asks_for(tmp_path: Path) -> None:
    cost = 0.1  # of a model and an update of four bytes for every parameter
    rules = {"kind": "rational", "utility": {"cost_per_mb": cost / (8 * PARAMETERS / 1e6)}}
    groups = [
        {"name": "free", "count": 4, "participation": rules},
        {
            "name": "metered",
            "count": 4,
            "participation": rules,
            "device": {"connectivity": {"metered": True}},
        },
    ]
    task = {"name": "digits", "model": "softmax", "validation_ratio": 0.3, "partition": "iid"}
    read = scenario(groups, task=task, server={"rounds": ROUNDS, "aggregator": "feduca"})
    assert simulate_run(read, tmp_path) == "completed"
    rows = table(tmp_path, "valuations").sort_values(["client", "round"])
    rows["cost"] = np.where(rows["client"].str.startswith("metered"), cost, 0.0)
    free = rows[rows["forced"] == 0]
    gained = free["received_accuracy"] - free["own_accuracy"]
    np.testing.assert_array_equal(free["gains"] == 1, gained > free["cost"])
    assert ((gained > 0) & (free["gains"] == 0)).any(), "no device found its link too expensive"
    # γ is the accuracy of the own model after training, which the next call measures, and the cost.
    own_later = rows.groupby("client")["own_accuracy"].shift(-1)
    there = own_later.notna()
    asked = (own_later + rows["cost"])[there]
    np.testing.assert_allclose(rows["threshold"][there], asked, rtol=0, atol=1e-9)


def test_weights_by_participation_know_who_had_no_gain(tmp_path: Path) -> None:
    group = {
        "name": "phones",
        "count": 12,
        "availability": {"kind": "logistic", "intercept": 0.5, "z": {"age": 0.7}},
        "covariates": {
            "z": {"age": {"kind": "normal"}},
            "x": {"load": {"kind": "normal"}, "lately": "recent"},
        },
        "participation": {"kind": "rational", "utility": {"tolerance": 0.1}, "drop_out": 0.3},
    }
    server = {"rounds": ROUNDS, "aggregator": "participation-ipw", "keep_updates": True}
    read = scenario([group], server=server)
    assert simulate_run(read, tmp_path) == "completed"
    answers = answers_of(tmp_path)
    assert {"no gain", "drop-out", "offline"} <= set(answers["reason"].dropna())
    # The moving average of its participation that a device reports grows only if it took part.
    for _, calls in answers.groupby("client"):
        lately = 0.0
        for x, decision in zip(calls["x"].astype(str), calls["decision"], strict=True):
            assert json.loads(x)["lately"] == pytest.approx(lately)
            lately = 0.9 * (lately + 0.1 * (decision == "accept"))
    assert audit(tmp_path).first is None
