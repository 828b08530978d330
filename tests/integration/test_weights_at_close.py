"""Updates that a rule weighs only when the round closes, and updates that a rule remembers: one
that is too large for an exact sum costs its own device the round, and nobody else anything."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from muster.client.training.local import train as muster_train
from muster.client.training.trainer import Trained
from muster.common.config import validate
from muster.emulator.scenario.scenario import Scenario
from muster.server.aggregators import Cohort, State, Weighing
from muster.server.aggregators.fedavg import FedAvg
from muster.simulation.whole_run import simulate_run

LARGEST = 2.0**29
"""With weight 1 an exact sum could hold it."""


def trains_largely(
    task: Any, module: Any, received: Any, examples: Any, settings: Any, *,
    entry: float = LARGEST, **named: Any,
) -> Trained:  # fmt: skip
    """Train; but two devices of four then send an update with one large entry."""
    trained = muster_train(task, module, received, examples, settings, **named)
    if named["client"] in ("dev-0001", "dev-0002"):
        delta = np.zeros_like(trained.delta)
        delta[0] = entry
        return replace(trained, delta=delta)
    return trained


class Heavy(FedAvg):
    """Gives every update the weight 100, when the round closes."""

    weights = "at-close"

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        weights = [100.0] * len(cohort.contributions)
        return Weighing(weights, sum(weights), state)


OWN = f"{__name__}:Heavy"


@pytest.mark.parametrize(
    ("rule", "entry", "held"),
    [
        (OWN, LARGEST, False),
        (OWN, LARGEST, True),
        ("mifa", 2.0**31, False),
        ("fedvarp", 3e38, False),
    ],
)
def test_updates_too_large_for_an_exact_sum_cost_nobody_else_anything(
    tmp_path: Path, rule: str, entry: float, held: bool
) -> None:
    more = {"devices_per_process": 4, "partial_sums": True} if held else {}
    values = {
        "name": "large",
        "seed": 2,
        "task": {"name": "linear", "dimension": 5},
        "training": {
            "learning_rate": 1e-3,
            "trainer": {"kind": f"{__name__}:trains_largely", "entry": entry},
        },
        "server": {"rounds": 3, "aggregator": rule},
        "groups": [{"name": "dev", "count": 4, **more}],
    }
    folder = tmp_path / "run"
    assert simulate_run(validate(Scenario, values, "test"), folder) == "completed"
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger:
        rows = ledger.execute("SELECT client, outcome, reason FROM contributions").fetchall()
    large = {("dev-0001", "norm"), ("dev-0002", "norm")}
    assert {(client, reason) for client, outcome, reason in rows if outcome != "folded"} == large
    assert sum(outcome == "folded" for _, outcome, _ in rows) == 3 * 2
    assert all(np.isfinite(each).all() for each in load_file(folder / "model.safetensors").values())
