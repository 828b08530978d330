"""Runs of rules that remember the last update of every client, recomputed; and what they are for.

Every update is trained again from its base version, and every version is made again by the
algorithms of the papers.
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration.retraining import Retrained, last_model, retrained_models

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.common.seeds import FloatArray
from muster.emulator.records.summary import read_summary
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.whole_run import simulate_run

DEVICES = 7
MODES: dict[str, dict[str, Any]] = {
    "synchronous": {"selection": {"kind": "uniform", "k": 3}},
    "opportunistic": {"mode": {"kind": "opportunistic"}, "deadline_s": 6.0},
    "buffered": {
        "mode": {
            "kind": "buffered",
            "k": 3,
            "concurrency": 5,
            "staleness_weight": {"kind": "constant"},
        }
    },
}


def scenario(rule: dict[str, Any], server: dict[str, Any], **sections: Any) -> Scenario:
    values = {
        "name": "remembering",
        "seed": 4,
        "clock": {"round_s": 4.0},
        "task": {"name": "linear", "dimension": 5, "heterogeneity": 1.0},
        "training": {"learning_rate": 0.05, "local_steps": 3, "batch_size": 8},
        "server": {"rounds": 25, "aggregator": rule, **server},
        "groups": [
            {"name": "quick", "count": 4, "device": {"examples_per_s": 20}},
            {
                "name": "slow",
                "count": DEVICES - 4,
                "device": {"examples_per_s": {"kind": "log-normal", "median": 3, "sigma": 0.5}},
                "availability": {"kind": "bernoulli", "probability": 0.8},
            },
        ],
        **sections,
    }
    return validate(Scenario, values, "remembering")


def fedvarp(theta: FloatArray, y: dict[str, FloatArray], new: dict[str, FloatArray]) -> FloatArray:
    zero = np.zeros(len(theta))
    fresh = np.mean([new[i] - y.get(i, zero) for i in new], axis=0)
    return np.asarray(theta + 0.7 * (fresh + sum(y.values(), zero) / DEVICES))


def mifa(theta: FloatArray, y: dict[str, FloatArray], new: dict[str, FloatArray]) -> FloatArray:
    g = {**y, **new}
    return theta + 0.7 * sum(g.values()) / DEVICES if len(g) == DEVICES else theta


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("kind", "formula"), [("fedvarp", fedvarp), ("mifa", mifa)])
def test_the_model_is_that_of_the_algorithm(
    tmp_path: Path, kind: str, formula: Any, mode: str
) -> None:
    read = scenario({"kind": kind, "rate": 0.7}, MODES[mode])
    assert simulate_run(read, tmp_path / "run") == "completed"
    y = dict[str, FloatArray]()
    stale = list[int]()

    def next_model(row: Any, theta: FloatArray, updates: list[Retrained]) -> FloatArray:
        stale.extend(update.row.staleness for update in updates)
        new = {update.row.client: update.delta for update in updates}
        theta = formula(theta, y, new)
        y.update(new)
        return theta

    models = retrained_models(read, tmp_path / "run", next_model)
    assert (max(stale) >= 1) == (mode != "synchronous")
    assert len(y) == DEVICES
    assert np.linalg.norm(models[-1] - models[0]) > 0.1, "the model has not moved"
    np.testing.assert_allclose(last_model(tmp_path / "run"), models[-1], rtol=1e-4, atol=1e-6)


def test_the_ledger_names_the_newest_update_of_every_client(tmp_path: Path) -> None:
    read = scenario({"kind": "fedvarp"}, MODES["synchronous"])
    assert simulate_run(read, tmp_path / "run") == "completed"
    with closing(sqlite3.connect(tmp_path / "run/ledger.sqlite")) as ledger:
        query = (
            "SELECT client, max(round), (count(*) + 1) % 2 FROM contributions "
            "WHERE outcome = 'folded' GROUP BY client ORDER BY client"
        )
        expected = ledger.execute(query).fetchall()
        found = ledger.execute("SELECT client, round, slot FROM memory ORDER BY client").fetchall()
    assert found == expected
    assert (tmp_path / "run/memory.bin").stat().st_size <= 2 * DEVICES * 4096


def test_staleness_weights_are_refused() -> None:
    with pytest.raises(ConfigError, match="do not depend on how stale an update is"):
        scenario({"kind": "mifa"}, {"mode": {"kind": "buffered", "k": 3, "concurrency": 5}})


# --- what memory is for --------------------------------------------------------------------------


def distances(folder: Path, rule: str) -> list[float]:
    """The distances to the optimum after each of the last ten evaluations.

    Half of the devices want θ = θ₀ + 4 and are nearly always there. The others want θ = θ₀ − 4 and
    are there in one round of five.
    """
    groups = [
        {
            "name": name,
            "count": 4,
            "covariates": {"z": {"side": {"kind": "constant", "value": side}}},
            "availability": {"kind": "bernoulli", "probability": probability},
        }
        for name, side, probability in (("often", 1.0, 0.9), ("seldom", -1.0, 0.2))
    ]
    task = {
        "name": "quadratic",
        "dimension": 3,
        "condition": 1.0,
        "heterogeneity": 0.1,
        "covariates": {"side": [4.0, 4.0, 4.0]},
    }
    training = {"learning_rate": 0.05, "local_steps": 2, "batch_size": "full"}
    server = {"rounds": 300, "evaluate_every": 5}
    read = scenario({"kind": rule}, server, groups=groups, task=task, training=training)
    assert simulate_run(read, folder) == "completed"
    assert read_summary(folder)["empty_rounds"] < 10
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger:
        rows = ledger.execute("SELECT metrics FROM evaluations ORDER BY version").fetchall()
    return [json.loads(metrics)["distance"] for (metrics,) in rows[-10:]]


def test_memory_corrects_for_availability_that_depends_on_the_data(tmp_path: Path) -> None:
    # By the shares 0.9 and 0.2 the mean of those who take part is about 4·(0.9 − 0.2)/1.1 ≈ 2.5 off
    # in each of three coordinates, 4.4 in all.
    biased = np.mean(distances(tmp_path / "fedavg", "fedavg"))
    assert 3 < biased < 6
    for rule in ("mifa", "fedvarp"):
        assert max(distances(tmp_path / rule, rule)) < biased / 4
