"""Asynchronous runs, recomputed: every update is trained again from its base version, and every
version is made again by the rule's formula."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.integration.retraining import Retrained, last_model, retrained_models

from muster.common.config import validate
from muster.common.seeds import FloatArray
from muster.emulator import run
from muster.emulator.records.account import Account
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.whole_run import simulate_run


class Folded(NamedTuple):
    """The updates of a version: for each the model from which it was trained, what training
    changed, its discount and its examples."""

    bases: list[FloatArray]
    deltas: list[FloatArray]
    discounts: list[float]
    examples: list[int]

    def trained(self) -> FloatArray:
        return np.array(self.bases) + np.array(self.deltas)


Rule = Callable[[FloatArray, Folded], FloatArray]
"""Takes the model and the updates, and returns the next model."""


def fedavg(theta: FloatArray, of: Folded) -> FloatArray:
    weights = np.array(of.discounts) * of.examples
    return np.asarray(theta + weights @ np.array(of.deltas) / weights.sum())


def fedbuff(theta: FloatArray, of: Folded) -> FloatArray:
    return np.asarray(theta + np.array(of.discounts) @ np.array(of.deltas) / len(of.deltas))


def fedasync(theta: FloatArray, of: Folded) -> FloatArray:
    share = 0.6 * np.mean(of.discounts)
    mixed = 0.6 * np.array(of.discounts) @ of.trained() / len(of.deltas)
    return np.asarray((1 - share) * theta + mixed)


def agnostic(theta: FloatArray, of: Folded) -> FloatArray:
    return np.asarray(np.average(of.trained(), axis=0, weights=of.discounts))


def median(theta: FloatArray, of: Folded) -> FloatArray:
    return np.asarray(theta + np.median(of.deltas, axis=0))


def trimmed_mean(theta: FloatArray, of: Folded) -> FloatArray:
    return np.asarray(theta + np.sort(of.deltas, axis=0)[1:-1].mean(axis=0))


def multi_krum(theta: FloatArray, of: Folded) -> FloatArray:
    """f = 1: the n − 3 of n updates that are closest to their n − 3 closest others."""
    apart = [[((a - b) ** 2).sum() for b in of.deltas] for a in of.deltas]
    size = len(apart) - 3
    best = np.argsort([sum(sorted(row)[: size + 1]) for row in apart])[:size]
    weights = np.array(of.discounts)[best]
    return np.asarray(theta + weights @ np.array(of.deltas)[best] / weights.sum())


def bulyan(theta: FloatArray, of: Folded) -> FloatArray:
    """f = 0 selects and averages all updates."""
    return np.asarray(theta + np.mean(of.deltas, axis=0))


def scenario(rule: str | dict[str, Any], mode: dict[str, Any], **sections: Any) -> Scenario:
    """A scenario in lockstep; keyword arguments replace whole sections."""
    return validate(
        Scenario,
        {
            "name": "asynchronous",
            "seed": 4,
            "clock": {"round_s": 4.0},
            "task": {"name": "linear", "dimension": 5, "heterogeneity": 1.0},
            "training": {"learning_rate": 0.05, "local_steps": 3, "batch_size": 8},
            "server": {"rounds": 25, "aggregator": rule, "mode": mode, "deadline_s": 6.0},
            "groups": [
                {"name": "quick", "count": 4, "device": {"examples_per_s": 20}},
                {
                    "name": "slow",
                    "count": 3,
                    "device": {"examples_per_s": {"kind": "log-normal", "median": 3, "sigma": 0.5}},
                    "availability": {"kind": "bernoulli", "probability": 0.8},
                },
            ],
            **sections,
        },
        "asynchronous",
    )


MODES: dict[str, dict[str, Any]] = {
    "fedasync": {"kind": "buffered", "k": 1, "concurrency": 4},
    "buffered": {"kind": "buffered", "k": 3, "concurrency": 5},
    "at each finish": {"kind": "buffered", "k": 3, "concurrency": 5, "calls_at": "finish"},
    "alike": {"kind": "opportunistic", "staleness_weight": "constant"},
    "opportunistic": {
        "kind": "opportunistic",
        "staleness_weight": {"kind": "threshold", "limit": 0, "slope": 0.5},
    },
}


_PACES = {"kind": "log-normal", "median": 5, "sigma": 0.8}


def discount(mode: dict[str, Any], staleness: int) -> float:
    if mode["kind"] == "opportunistic":
        return 1.0 if mode == MODES["alike"] else 1 / (1 + 0.5 * staleness)
    return float((1 + staleness) ** -0.5)


def test_the_journal_tells_how_stale_the_updates_of_every_round_are(tmp_path: Path) -> None:
    assert simulate_run(scenario("fedavg", MODES["opportunistic"]), tmp_path / "run") == "completed"
    counted = defaultdict[int, Counter[str]](Counter)
    with Account(tmp_path / "run") as account:
        row: Any
        for row in account.contributions.itertuples():
            if row.outcome == "folded":
                counted[row.round][str(row.staleness)] += 1
    lines = (tmp_path / "run/journal.jsonl").read_text().splitlines()
    told = [event for line in lines if (event := json.loads(line))["event"] == "round_committed"]
    assert {event["round"]: event["staleness"] for event in told if event["folded"]} == counted
    assert max(int(versions) for of_round in counted.values() for versions in of_round) >= 2


def test_with_calls_at_each_finish_as_many_devices_work_at_every_time(tmp_path: Path) -> None:
    mode = MODES["at each finish"]
    groups = [{"name": "dev", "count": 12, "device": {"examples_per_s": _PACES}}]
    server = {"rounds": 20, "aggregator": "fedbuff", "mode": mode}
    read = scenario("fedbuff", mode, server=server, groups=groups)
    assert simulate_run(read, tmp_path / "run") == "completed"
    with Account(tmp_path / "run") as account:
        answers = account.answers.merge(account.rounds[["round", "scenario_s"]], on="round")
        begun_s, opened_s = answers["scenario_s"], account.rounds["scenario_s"]
        ended_s = begun_s + answers["modelled_s"]
        working = [int(((begun_s <= at) & (at < ended_s)).sum()) for at in opened_s]
        assert account.rounds["version"].max() == 20
    assert set(working) == {mode["concurrency"]}
    assert len(working) > 50, "a round for nearly every update"


def test_with_one_update_a_version_it_is_the_same_when_devices_are_called(tmp_path: Path) -> None:
    groups = [{"name": "dev", "count": 8, "device": {"examples_per_s": _PACES}}]
    models = []
    for calls_at in ("version", "finish"):
        read = scenario("fedasync", {**MODES["fedasync"], "calls_at": calls_at}, groups=groups)
        assert simulate_run(read, tmp_path / calls_at) == "completed"
        models.append(last_model(tmp_path / calls_at))
    np.testing.assert_array_equal(models[0], models[1])


@pytest.mark.parametrize(
    ("rule", "mode", "formula"),
    [
        ("fedavg", "buffered", fedavg),
        ("fedavg", "opportunistic", fedavg),
        ("fedbuff", "buffered", fedbuff),
        ("fedbuff", "at each finish", fedbuff),
        ("fedasync", "fedasync", fedasync),
        ("fedasync", "buffered", fedasync),
        ({"kind": "agnostic", "offer": "last"}, "opportunistic", agnostic),
        ("median", "alike", median),
        ({"kind": "trimmed-mean", "byzantine": 1}, "alike", trimmed_mean),
        ({"kind": "multi-krum", "byzantine": 1}, "opportunistic", multi_krum),
        ({"kind": "bulyan", "byzantine": 0}, "alike", bulyan),
    ],
)
def test_the_model_is_that_of_the_formula(
    tmp_path: Path, rule: str | dict[str, Any], mode: str, formula: Rule
) -> None:
    read = scenario(rule, MODES[mode])
    assert simulate_run(read, tmp_path / "run") == "completed"
    require_formula(read, tmp_path / "run", MODES[mode], formula, stale=2)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("rule", "formula", "mode"),
    [
        ("fedavg", fedavg, MODES["buffered"]),
        ("fedbuff", fedbuff, MODES["buffered"]),
        ("fedasync", fedasync, MODES["buffered"]),
        ("fedbuff", fedbuff, MODES["at each finish"]),
    ],
)
def test_on_the_wall_clock_the_model_is_that_of_the_formula(
    tmp_path: Path, rule: str, formula: Rule, mode: dict[str, Any]
) -> None:
    read = scenario(rule, mode, clock={"kind": "wall"}, groups=[{"name": "a", "count": 7}])
    assert run(read, out=tmp_path / "run", report=False).status == "completed"
    require_formula(read, tmp_path / "run", mode, formula, stale=1)


def require_formula(
    read: Scenario, folder: Path, mode: dict[str, Any], formula: Rule, stale: int
) -> None:
    """Require that a run's model is what a formula makes of its updates, the stalest of which has
    at least the staleness `stale`."""
    found = []

    def next_model(row: Any, theta: FloatArray, updates: list[Retrained]) -> FloatArray:
        ages = [row.base_version - update.row.base_version for update in updates]
        found.extend(ages)
        of = Folded(
            [update.base for update in updates],
            [update.delta for update in updates],
            [discount(mode, age) for age in ages],
            [update.row.examples for update in updates],
        )
        return formula(theta, of)

    models = retrained_models(read, folder, next_model)
    assert max(found) >= stale
    np.testing.assert_allclose(last_model(folder), models[-1], rtol=1e-4, atol=1e-6)
