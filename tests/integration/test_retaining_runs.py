"""Runs of rules that retain what declining devices have sent, recomputed from the kept updates."""

import json
import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tests.integration.retraining import last_model

from muster.client.device.memory import Memory
from muster.client.device.rational import ModelJudgement
from muster.client.device.utility import fitted
from muster.common.config import validate
from muster.common.errors import RunFailed
from muster.common.seeds import FloatArray
from muster.emulator.fleet.lives import task_of
from muster.emulator.run_audit import audit
from muster.emulator.scenario.population import population
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.whole_run import simulate_run
from muster.tasks.parts import vector_of

ROUNDS, DEVICES = 5, 4
CLIENTS = [f"silo-{place:04}" for place in range(DEVICES)]
RULES: dict[str, dict[str, Any]] = {
    "rational-fedavg": {},
    "feduca": {"strategies": 3, "regularization": 0.0},  # with it, all weights are 1/N
    "max-participation": {},
    "incfl": {"epsilon": 1e-9},
    "aaggff-s": {},
}
NOBODY: dict[str, Any] = {"margin": 100}
"""Devices that ask for 101 times the accuracy of their own model leave after the first round."""


def scenario(
    kind: str, retention: str, rounds: int = ROUNDS, order: str = "", **utility: Any
) -> Scenario:
    rule = {"kind": kind, "retention": retention, **RULES[kind]}
    rule |= {"order": order} if order else {}
    values: dict[str, Any] = {
        "name": "retaining",
        "seed": 5,
        "task": {
            "name": "digits",
            "validation_ratio": 0.3,
            "partition": {"kind": "dirichlet", "alpha": 0.3},
        },
        "server": {"rounds": rounds, "aggregator": rule, "keep_updates": True},
        "groups": [
            {
                "name": "silo",
                "count": DEVICES,
                "participation": {"kind": "rational", "utility": utility},
            }
        ],
    }
    return validate(Scenario, values, "retaining")


def initial(read: Scenario) -> FloatArray:
    opened = task_of(read, population(read)).open(read.devices, read.seed)
    return vector_of(opened.module()).astype(np.float64)


def alphas(folder: Path) -> list[dict[str, float]]:
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger:
        query = "SELECT value FROM estimates WHERE name = 'alpha' ORDER BY round"
        return [json.loads(value) for (value,) in ledger.execute(query)]


def updates(folder: Path, round: int) -> dict[str, FloatArray]:
    path = folder / f"updates/{round:06d}.safetensors"
    if not path.exists():
        return {}
    kept = load_file(path)
    return {c: np.frombuffer(b.tobytes(), "<f4").astype(np.float64) for c, b in kept.items()}


def models(
    read: Scenario, folder: Path, retention: str
) -> Iterator[tuple[FloatArray, dict[str, FloatArray]]]:
    """θ = Σ α_k·m_k after each round and m_k, where m_k is the version that k trained from plus its
    update; for stale updates, the newest version plus its update."""
    theta = initial(read)
    last = {client: np.zeros_like(theta) for client in CLIENTS}
    parts = dict.fromkeys(CLIENTS, theta)
    for number, alpha in enumerate(alphas(folder), start=1):
        for client, update in updates(folder, number).items():
            last[client], parts[client] = update, theta + update
        if retention == "update":
            parts = {client: theta + last[client] for client in CLIENTS}
        assert sum(alpha.values()) == pytest.approx(1)
        theta = sum((alpha[client] * parts[client] for client in CLIENTS), np.zeros_like(theta))
        yield theta, dict(parts)


@pytest.mark.parametrize("retention", ["update", "model"])
@pytest.mark.parametrize("kind", RULES)
def test_every_version_is_the_weighted_sum_of_what_all_devices_have_sent(
    tmp_path: Path, kind: str, retention: str
) -> None:
    made = []
    for rounds in range(1, ROUNDS + 1):  # a shorter run ends with an earlier version
        folder = tmp_path / str(rounds)
        assert simulate_run(scenario(kind, retention, rounds), folder) == "completed"
        made.append(last_model(folder))
    remade = list(models(scenario(kind, retention), tmp_path / str(ROUNDS), retention))
    expected = [theta for theta, _ in remade]
    np.testing.assert_allclose(made, expected, rtol=0, atol=1e-5)
    _, parts = remade[-2]  # devices were called with the version before the last
    for client, part in parts.items():
        kept = Memory(tmp_path / f"{ROUNDS}/devices/{client}").held[-1].after.own
        known = ModelJudgement.from_bytes(kept).part
        assert known is not None
        assert known.contribution is not None
        np.testing.assert_allclose(known.contribution, part, rtol=0, atol=1e-5)
    sent = [len(updates(tmp_path / str(ROUNDS), number)) for number in range(1, ROUNDS + 1)]
    assert min(sent) < DEVICES, "nobody has ever declined"
    result = audit(tmp_path / str(ROUNDS))
    assert result.agrees, result.first
    again = next(check for check in result.checks if "made again" in check.title)
    assert (again.skipped, again.compared > ROUNDS) == ((), True)


OWN_RULE = """
import numpy as np
from muster.server.aggregators import Recalling, Weighing

class Odd(Recalling):
    weights = "at-close"
    wrong: str


    def weigh(self, cohort, state):
        recalled = dict.fromkeys(cohort.population.clients, 0.25)
        if self.wrong == "missing":
            del recalled["silo-0001"]
        else:
            recalled["silo-0001"] = float(self.wrong)
        return Weighing([0.25] * len(cohort.contributions), 1.0, state, recalled=recalled)
"""


@pytest.mark.parametrize(
    ("wrong", "shown"), [("missing", "nan"), ("nan", "nan"), ("inf", "inf"), ("-0.5", "-0.5")]
)
def test_a_rule_of_ones_own_must_weigh_every_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str, shown: str
) -> None:
    (tmp_path / "own_rule_of_recall.py").write_text(OWN_RULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    rule = {"kind": "own_rule_of_recall:Odd", "wrong": wrong}
    values = {
        "name": "own",
        "task": {"name": "digits"},
        "server": {"rounds": 2, "aggregator": rule},
        "groups": [{"name": "silo", "count": DEVICES}],
    }
    with pytest.raises(RunFailed, match=f"gave the weight {shown} to silo-0001; expected a finite"):
        simulate_run(validate(Scenario, values, "own"), tmp_path / "run")


def outcomes(folder: Path) -> list[tuple[str, int]]:
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger:
        return list(ledger.execute("SELECT outcome, folded FROM rounds ORDER BY round"))


def test_in_a_frozen_federation_stale_models_keep_the_model(tmp_path: Path) -> None:
    made = {}
    for rounds in (1, 4):
        read = scenario("rational-fedavg", "model", rounds, **NOBODY)
        assert simulate_run(read, tmp_path / "run") == "completed"
        made[rounds] = last_model(tmp_path / "run")
    assert outcomes(tmp_path / "run") == [("aggregated", DEVICES), *[("aggregated", 0)] * 3]
    np.testing.assert_array_equal(made[4], made[1])
    assert audit(tmp_path / "run").agrees


@pytest.mark.parametrize("kind", RULES)
def test_in_a_frozen_federation_stale_updates_move_the_model(tmp_path: Path, kind: str) -> None:
    read = scenario(kind, "update", 4, **NOBODY)
    assert simulate_run(read, tmp_path / "run") == "completed"
    assert outcomes(tmp_path / "run") == [("aggregated", DEVICES), *[("aggregated", 0)] * 3]
    sent = updates(tmp_path / "run", 1)
    moves = [sum(alpha[c] * sent[c] for c in CLIENTS) for alpha in alphas(tmp_path / "run")]
    expected = initial(read) + sum(moves)
    np.testing.assert_allclose(last_model(tmp_path / "run"), expected, rtol=0, atol=1e-5)
    assert np.abs(moves[-1]).max() > 1e-3


@pytest.mark.parametrize("kind", ["feduca", "max-participation"])
def test_with_solve_first_those_accept_whom_the_server_predicted(tmp_path: Path, kind: str) -> None:
    read = scenario(kind, "update", 8, "solve-first", test="fitted", threshold="weight")
    assert simulate_run(read, tmp_path / "run") == "completed"
    with closing(sqlite3.connect(tmp_path / "run/ledger.sqlite")) as ledger:
        said = {
            (round, client): decision == "accept"
            for round, client, decision in ledger.execute(
                "SELECT round, client, decision FROM answers"
            )
        }
        estimates = {
            (round, name): json.loads(value)
            for round, name, value in ledger.execute("SELECT round, name, value FROM estimates")
        }
    for number in range(1, 8):
        predicted = estimates[number, "predicted"]
        assert {c: bool(stays) for c, stays in predicted.items()} == {
            client: said[number + 1, client] for client in CLIENTS
        }
        reached = sum(predicted.values())
        assert reached <= estimates[number, "attainable"]
        assert kind == "feduca" or reached == estimates[number, "attainable"]
    if kind == "feduca":
        assert not all(said.values())


class WrongFits:
    """Fits utilities, wrongly for every second device in the second round."""

    def __init__(self, wrong: tuple[float, float, float]) -> None:
        self._wrong = wrong
        self._fits = 0

    def __call__(self, weights: FloatArray, utilities: FloatArray) -> tuple[float, float, float]:
        self._fits += 1
        second = DEVICES < self._fits <= 2 * DEVICES
        return self._wrong if second and self._fits % 2 else fitted(weights, utilities)


@pytest.mark.parametrize("wrong", [(-1.0, 0.0, 0.5), (0.5, math.nan, 0.5), (0.5, 0.0, math.inf)])
def test_a_device_whose_valuation_is_refused_counts_as_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: tuple[float, float, float]
) -> None:
    monkeypatch.setattr("muster.client.device.rational.fitted", WrongFits(wrong))
    read = scenario("feduca", "update", 4, test="fitted", threshold="weight", tolerance=1.0)
    assert simulate_run(read, tmp_path / "run") == "completed"
    with closing(sqlite3.connect(tmp_path / "run/ledger.sqlite")) as ledger:
        where = "round = 2 AND reason = 'valuation'"
        refused = ledger.execute(f"SELECT client, round, decision FROM answers WHERE {where}")
        update = f"SELECT client FROM contributions WHERE {where} AND outcome = 'refused'"
        left = "SELECT client FROM valuations WHERE round = 2"
        found = refused.fetchall()
        clients = [client for client, _, _ in found]
        assert found == [(client, 2, "decline") for client in clients]
        assert len(clients) == DEVICES / 2
        assert {client for (client,) in ledger.execute(update)} == set(clients)
        assert {client for (client,) in ledger.execute(left)} == set(CLIENTS) - set(clients)
    assert updates(tmp_path / "run", 2).keys() == set(CLIENTS) - set(clients)
    *_, (expected, _) = models(read, tmp_path / "run", "update")  # their updates of round 1 stay
    np.testing.assert_allclose(last_model(tmp_path / "run"), expected, rtol=0, atol=1e-5)
    assert audit(tmp_path / "run").agrees
