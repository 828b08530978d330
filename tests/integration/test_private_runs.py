"""Whole runs with differential privacy, recomputed from their ledgers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration.retraining import Retrained, last_model, retrained_models

from muster.common.config import validate
from muster.common.seeds import FloatArray, stream
from muster.emulator.records.account import Account
from muster.emulator.records.summary import describe, summarise
from muster.emulator.report.page import write_report
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.whole_run import simulate_run

CLIP, NOISE = 0.2, 0.7


def scenario(where: str, mode: dict[str, Any], **server: Any) -> Scenario:
    privacy = {"clip": CLIP, "noise": NOISE, "where": where}
    return validate(
        Scenario,
        {
            "name": "private",
            "seed": 4,
            "clock": {"round_s": 4.0},
            "task": {"name": "linear", "dimension": 5, "heterogeneity": 1.0},
            "training": {"learning_rate": 0.05, "local_steps": 3, "batch_size": 8},
            "server": {"rounds": 12, "mode": mode, "privacy": privacy, **server},
            "groups": [
                {"name": "quick", "count": 4, "device": {"examples_per_s": 20}},
                {"name": "slow", "count": 3, "device": {"examples_per_s": 3}},
            ],
        },
        "private",
    )


SYNCHRONOUS: dict[str, Any] = {"kind": "synchronous"}
BUFFERED: dict[str, Any] = {"kind": "buffered", "k": 3, "concurrency": 5}


def clipped(delta: FloatArray) -> FloatArray:
    return delta * min(1.0, CLIP / float(np.linalg.norm(delta)))


@pytest.mark.parametrize(
    ("where", "mode"),
    [("server", SYNCHRONOUS), ("server", BUFFERED), ("device", SYNCHRONOUS)],
)
def test_the_model_is_that_of_dp_fedavg(tmp_path: Path, where: str, mode: dict[str, Any]) -> None:
    read = scenario(where, mode)
    assert simulate_run(read, tmp_path / "run") == "completed"
    norms = []

    def next_model(row: Any, theta: FloatArray, updates: list[Retrained]) -> FloatArray:
        total, count = np.zeros(len(theta)), 0.0
        for update in updates:
            norms.append(np.linalg.norm(update.delta))
            delta, sent = clipped(update.delta), update.row
            if where == "device":
                draws = stream(read.seed, "privacy", sent.client, sent.call_round)
                delta = delta + draws.normal(0.0, CLIP * NOISE, len(delta))
            discount = (1 + row.base_version - sent.base_version) ** -0.5
            total, count = total + discount * delta, count + discount
        if where == "server":
            draws = stream(read.seed, "server noise", row.round)
            total = total + draws.normal(0.0, CLIP * NOISE, len(total))
        return np.asarray(theta + total / count)

    models = retrained_models(read, tmp_path / "run", next_model)
    assert max(norms) > CLIP
    np.testing.assert_allclose(last_model(tmp_path / "run"), models[-1], rtol=1e-4, atol=1e-5)


def test_what_was_spent_is_in_the_ledger_the_summary_and_the_report(tmp_path: Path) -> None:
    from dp_accounting import get_epsilon_gaussian

    read = scenario("server", SYNCHRONOUS, minimum=7, deadline_s=3.0)
    assert simulate_run(read, tmp_path / "late") == "completed"
    with Account(tmp_path / "late") as account:
        # The slow devices are always late: no version, so nothing is spent.
        assert account.rounds["epsilon"].tolist() == [0.0] * 12
    assert simulate_run(scenario("server", SYNCHRONOUS), tmp_path / "run") == "completed"
    with Account(tmp_path / "run") as account:
        expected = [get_epsilon_gaussian(NOISE / n**0.5, 1e-5) for n in range(1, 13)]
        assert account.rounds["epsilon"].tolist() == pytest.approx(expected)
        summary = summarise(account)
    page = write_report(tmp_path / "run").read_text()
    spent = {"epsilon": pytest.approx(expected[-1]), "delta": 1e-5, "where": "server"}
    assert summary["privacy"] == spent
    assert f"ε = {expected[-1]:.4g} for δ = 1e-05, noise added by the server" in describe(
        summary, tmp_path / "run"
    )
    assert "it protects nobody" in page


def test_a_run_without_privacy_has_none_of_it(tmp_path: Path) -> None:
    read = scenario("server", SYNCHRONOUS)
    server = read.server.model_copy(update={"privacy": None})
    assert simulate_run(read.model_copy(update={"server": server}), tmp_path / "run") == "completed"
    with Account(tmp_path / "run") as account:
        assert account.rounds["epsilon"].isna().all()
        assert "privacy" not in summarise(account)
