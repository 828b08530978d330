"""Runs with rational devices, recomputed: every decision is taken again from models that are
trained again."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tests.integration.retraining import last_model
from torch import nn

from muster.client.training.local import train
from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.common.seeds import FloatArray, stream
from muster.common.tensors import Vector
from muster.emulator.fleet.lives import task_of
from muster.emulator.records.account import Account
from muster.emulator.scenario.population import population
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.whole_run import simulate_run
from muster.tasks.parts import vector_of
from muster.tasks.task import Examples

ROUNDS = 6


def scenario(**sections: Any) -> Scenario:
    values: dict[str, Any] = {
        "name": "rational",
        "seed": 3,
        "task": {
            "name": "digits",
            "validation_ratio": 0.3,
            "partition": {"kind": "dirichlet", "alpha": 0.3},
        },
        "server": {"rounds": ROUNDS},
        "groups": [{"name": "silo", "count": 6, "participation": {"kind": "rational"}}],
    }
    return validate(Scenario, {**values, **sections}, "rational")


def right(module: nn.Module, parameters: Vector, examples: Examples) -> float:
    flat = torch.from_numpy(parameters.copy())
    nn.utils.vector_to_parameters(flat, module.parameters())
    with torch.no_grad():
        guessed = module(torch.from_numpy(examples.x)).argmax(1).numpy()
    return float(np.mean(guessed == examples.y))


class Silo:
    """A rational device, written down again."""

    own: Vector | None = None


def recomputed(read: Scenario) -> tuple[list[tuple[int, str, str]], FloatArray]:
    """Who accepts and who declines in each round, and the last model, under FedAvg."""
    opened = task_of(read, population(read)).open(read.devices, read.seed)
    module = opened.module()
    model = vector_of(module).astype(np.float64)
    clients = [f"silo-{place:04}" for place in range(read.devices)]
    silos, answers, version = [Silo() for _ in clients], [], 0
    for round_ in range(1, ROUNDS + 1):
        updates, sizes = [], []
        for place, (client, silo) in enumerate(zip(clients, silos, strict=True)):
            received = model.astype(np.float32)
            held_out, examples = opened.validation(place), opened.client(place)
            gains = silo.own is None or right(module, received, held_out) > right(
                module, silo.own, held_out
            )
            answers.append((round_, client, "accept" if gains else "decline"))
            start = received if gains or silo.own is None else silo.own
            named: dict[str, Any] = {"seed": read.seed, "client": client, "round": round_}
            trained = train(
                opened, module, start, examples, read.training, base_version=version, **named
            )
            silo.own = start + trained.delta
            if gains:
                updates.append(trained.delta.astype(np.float64))
                sizes.append(len(examples))
        if updates:
            model = model + np.average(updates, axis=0, weights=sizes)
            version += 1
    return answers, model


def test_devices_leave_and_come_back_by_the_accuracies_of_eq_1(tmp_path: Path) -> None:
    read = scenario()
    assert simulate_run(read, tmp_path) == "completed"
    answers, model = recomputed(read)
    with Account(tmp_path) as account:
        found = account.answers.sort_values(["round", "client"])
        assert list(found[["round", "client", "decision"]].itertuples(index=False)) == answers
        declined = found[found["decision"] == "decline"]
        assert set(declined["reason"]) == {"no gain"}
        comes_back = [
            client
            for client, of_client in found.groupby("client")["decision"]
            if "declineaccept" in "".join(of_client)
        ]
        assert len(declined) > 3
        assert comes_back, "no device came back"
    np.testing.assert_allclose(last_model(tmp_path), model, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("sections", "empty"),
    [
        ({"server": {"rounds": 3}}, True),
        (
            {
                "server": {
                    "rounds": 8,
                    "mode": {"kind": "buffered", "k": 2, "concurrency": 4},
                }
            },
            False,
        ),
    ],
    ids=["synchronous", "buffered"],
)
def test_devices_that_ask_for_too_much_leave_the_federation(
    tmp_path: Path, sections: dict[str, Any], empty: bool
) -> None:
    compliant = {"name": "compliant", "count": 2}
    rules = {"kind": "rational", "utility": {"margin": 100}}
    groups = [{"name": "silo", "count": 4, "participation": rules}]
    read = scenario(groups=groups if empty else [*groups, compliant], **sections)
    assert simulate_run(read, tmp_path) == "completed"
    with Account(tmp_path) as account:
        answers, rounds = account.answers, account.rounds
    silos = answers[answers["client"].str.startswith("silo")]
    again = silos[silos.duplicated("client")]
    assert len(again)
    assert set(again["reason"]) == {"no gain"}
    if empty:
        assert rounds["outcome"].tolist() == ["aggregated", "empty", "empty"]


def test_a_device_without_validation_examples_stops_a_run_before_its_start(tmp_path: Path) -> None:
    partition = {"kind": "dirichlet", "alpha": 0.05}  # some devices have a few examples only
    task = {"name": "digits", "validation_ratio": 0.1, "partition": partition}
    groups = [{"name": "silo", "count": 60, "participation": {"kind": "rational"}}]
    read = scenario(task=task, groups=groups)
    opened = task_of(read, population(read)).open(60, read.seed)
    without = [place for place in range(60) if not len(opened.validation(place))]
    assert without
    assert len(without) < 60
    with pytest.raises(ConfigError, match=rf"silo-{without[0]:04} holds out none"):
        simulate_run(read, tmp_path)
    compliant = [{"name": "silo", "count": 60}]
    assert (
        simulate_run(scenario(task=task, groups=compliant), tmp_path / "compliant") == "completed"
    )


def feduca(order: str, goal: int | None = None, **utility: Any) -> Scenario:
    rules = {"kind": "rational", "utility": utility}
    return scenario(
        server={
            "rounds": ROUNDS,
            "goal": goal,
            # With a regularization, weights are 1/N and nobody leaves.
            "aggregator": {
                "kind": "feduca",
                "strategies": 3,
                "order": order,
                "regularization": 0.0,
            },
        },
        groups=[{"name": "silo", "count": 6, "participation": rules}],
    )


def table(folder: Path, name: str) -> pd.DataFrame:
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger:
        return pd.read_sql(f"SELECT * FROM {name}", ledger)


def estimates(folder: Path, name: str) -> dict[int, dict[str, float]]:
    rows: list[Any] = list(table(folder, "estimates").query("name == @name").itertuples())
    return {row.round: json.loads(row.value) for row in rows}


@pytest.mark.parametrize(
    ("order", "goal"), [("lagged", None), ("solve-first", None), ("solve-first", 2)]
)
def test_versions_of_feduca_are_the_weighted_sums_of_all_last_updates(
    tmp_path: Path, order: str, goal: int | None
) -> None:
    read = feduca(order, goal, test="fitted", threshold="weight")
    assert simulate_run(read, tmp_path) == "completed"
    opened = task_of(read, population(read)).open(read.devices, read.seed)
    module = opened.module()
    model = vector_of(module).astype(np.float64)
    clients = [f"silo-{place:04}" for place in range(read.devices)]
    alphas, predicted = estimates(tmp_path, "alpha"), estimates(tmp_path, "predicted")
    answers = table(tmp_path, "answers").set_index(["round", "client"])["decision"]
    rows = table(tmp_path, "valuations").set_index(["round", "client"])
    rounds = table(tmp_path, "rounds").set_index("round")
    sent = table(tmp_path, "contributions").set_index(["round", "client"])["outcome"]
    counted = set(sent.index[sent == "folded"])
    assert (len(counted) < len(sent)) == (goal is not None)
    last = {client: np.zeros_like(model) for client in clients}
    told, parts = dict.fromkeys(clients, 1 / len(clients)), dict.fromkeys(clients, model)
    owns: dict[str, Vector] = {}
    curves: dict[str, Any] = {}
    for round_ in range(1, ROUNDS + 1):
        updates: dict[str, FloatArray] = {}
        received = model.astype(np.float32)
        for place, client in enumerate(clients):
            curve, r = curves.get(client), told[client]
            accepts = curve is None or (curve.b - curve.a * r) * r + curve.c >= curve.threshold
            assert answers[round_, client] == ("accept" if accepts else "decline")
            start = received if accepts else owns[client]
            trained = train(
                opened, module, start, opened.client(place), read.training, seed=read.seed,
                client=client, round=round_, base_version=int(rounds["base_version"][round_]),
            )  # fmt: skip
            owns[client] = start + trained.delta
            assert accepts == ((round_, client) in sent.index)
            if (round_, client) in counted:
                updates[client] = trained.delta.astype(np.float64)
            # The model without the client, mixed with the client's own model.
            others = (model - r * parts[client]) / (1 - r)
            grid = np.linspace(0, 1, 9)
            mixed = [((1 - x) * others + x * owns[client]).astype(np.float32) for x in grid]
            measured = [right(module, one, opened.validation(place)) for one in mixed]
            row: Any = rows.loc[(round_, client)]
            assert row.forced == (round_ == 1)
            if curve is None:
                assert np.isnan(row.fitted_utility)
                assert np.isnan(row.gains)
            else:
                assert row.fitted_utility == pytest.approx((curve.b - curve.a * r) * r + curve.c)
                assert row.gains == (row.received_accuracy > row.own_accuracy)
            curve = curves[client] = row
            minus_a, b, c = np.polyfit(grid, measured, 2)
            if minus_a < -0.02:
                assert (curve.a, curve.b, curve.c) == pytest.approx((-minus_a, b, c), abs=0.02)
            assert curve.threshold == pytest.approx((curve.b - curve.a * r) * r + curve.c)
        if rounds["outcome"][round_] == "empty":
            assert not updates
            continue
        last |= updates
        told = alphas[round_]
        weights = np.array(list(told.values()))
        assert weights.sum() == pytest.approx(1)
        # The invariant of every round (Lemma A.11) with n_s = 3 strategies and N = 6 clients.
        assert np.sum((weights - 1 / 6) ** 2) <= (3 - 1) / 6 + 1e-9
        parts = {client: model + last[client] for client in clients}
        model = model + sum(told[client] * last[client] for client in clients)
        if order == "solve-first" and round_ < ROUNDS:
            accepting = {client: answers[round_ + 1, client] == "accept" for client in clients}
            assert {c: bool(stays) for c, stays in predicted[round_].items()} == accepting
    assert set(answers) == {"accept", "decline"}
    np.testing.assert_allclose(last_model(tmp_path), model, rtol=0, atol=1e-5)


@pytest.mark.parametrize("test", ["coin", "always"])
def test_controls_measure_and_report_but_do_not_ask(tmp_path: Path, test: str) -> None:
    read = feduca("solve-first", test=test, forced_rounds=3, dense_points=15, margin=100)
    assert simulate_run(read, tmp_path) == "completed"
    rows, answers = table(tmp_path, "valuations"), table(tmp_path, "answers")
    assert len(rows) == 6 * ROUNDS
    assert (rows["gains"].dropna() == 0).all(), "no model is a hundred times better"
    assert (rows["forced"] == (rows["round"] <= 3)).all()
    assert rows["r_squared"].max() <= 1
    assert rows["r_squared"].notna().sum() > len(rows) / 2
    accepted = answers.set_index(["round", "client"])["decision"] == "accept"
    expected = {
        (round_, client): round_ <= 3
        or test == "always"
        or stream(read.seed, "utility coin", client, round_).random() < 0.5
        for round_, client in accepted.index
    }
    assert accepted.to_dict() == expected
    assert len(set(expected.values())) == (2 if test == "coin" else 1)
