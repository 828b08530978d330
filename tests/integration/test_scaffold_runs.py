"""Whole runs of scaffold: every version is made again from the ledger by the paper's algorithm."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load
from tests.integration.retraining import last_model

from muster.client.device.memory import Memory
from muster.client.training.local import minibatches
from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.common.seeds import FloatArray, stream
from muster.emulator.fleet.lives import task_of
from muster.emulator.planning import plan
from muster.emulator.records.account import Account
from muster.emulator.scenario.population import population
from muster.emulator.scenario.scenario import Scenario
from muster.server.account.ledger import Ledger
from muster.simulation.whole_run import simulate_run
from muster.tasks.parts import vector_of
from muster.tasks.task import Examples, OpenTask

LINEAR = {"name": "linear", "dimension": 5, "heterogeneity": 1.0, "examples_per_client": 12}
SPEEDS = {"kind": "log-normal", "median": 5, "sigma": 1.0}


def scenario(**sections: Any) -> Scenario:
    values: dict[str, Any] = {
        "name": "control",
        "seed": 5,
        "task": LINEAR,
        "training": {"learning_rate": 0.05, "local_steps": 4, "batch_size": 5},
        "server": {"rounds": 20, "aggregator": {"kind": "scaffold", "rate": 0.8}},
        "groups": [
            {"name": "dev", "count": 3},
            {"name": "long", "count": 2, "training": {"local_steps": 9}},
        ],
    }
    return validate(Scenario, {**values, **sections}, "control")


def opened(read: Scenario) -> OpenTask:
    return task_of(read, population(read)).open(read.devices, read.seed)


def gradient(task: OpenTask, theta: FloatArray, examples: Examples, rows: Any) -> FloatArray:
    """The gradient of a minibatch by autograd."""
    module = task.module()
    flat = torch.from_numpy(theta.astype(np.float32))
    torch.nn.utils.vector_to_parameters(flat, list(module.parameters()))
    x, y = torch.from_numpy(examples.x), torch.from_numpy(examples.y)
    x, y = (x, y) if rows is None else (x[rows], y[rows])
    found = torch.autograd.grad(task.loss(module(x), y), list(module.parameters()))
    return np.concatenate([each.numpy().ravel() for each in found]).astype(float)


def recomputed(
    read: Scenario, folder: Path
) -> tuple[FloatArray, FloatArray, dict[str, FloatArray]]:
    """θ, c and every c_i after the run by Algorithm 1, option II, from the updates that counted."""
    task, eta, rate = opened(read), read.training.learning_rate_at(1), 0.8
    theta = vector_of(task.module()).astype(float)
    c = np.zeros_like(theta)
    with Account(folder) as account:
        clients = account.clients.set_index("client")
        folded = account.contributions.query("outcome == 'folded'")
    own = {client: np.zeros_like(theta) for client in clients.index}
    steps = {group.name: group.training for group in read.groups}
    for number in sorted(set(folded["call_round"].astype(int))):
        updates = folded[folded["round"] == number]
        moves, changes = [], []
        for client in updates["client"]:
            examples = task.client(int(clients["position"][client]))
            training = read.training.of(steps[clients["group"][client]])
            y, count = theta.copy(), 0
            for rows in minibatches(
                len(examples), training, partial(stream, read.seed, "batches", client, number)
            ):
                y -= eta * (gradient(task, y, examples, rows) - own[client] + c)
                count += 1
            plus = own[client] - c + (theta - y) / (count * eta)
            moves.append(y - theta)
            changes.append(plus - own[client])
            own[client] = plus
        theta = theta + rate * np.mean(moves, axis=0)
        c = c + np.sum(changes, axis=0) / len(own)
    return theta, c, own


def last_control(folder: Path) -> FloatArray:
    """c as the server has committed it."""
    ledger = Ledger(folder / "ledger.sqlite")
    stored = ledger.state(ledger.newest_version() or 0)
    ledger.close()
    assert stored is not None
    assert stored.body is not None
    return np.asarray(load(stored.body)["control"], float)


DROPPING = {
    "server": {
        "rounds": 25,
        "aggregator": {"kind": "scaffold", "rate": 0.8},
        "selection": {"kind": "uniform", "k": 2, "over_selection": 2.0},
    },
    "groups": [
        {
            "name": "dev",
            "count": 6,
            "devices_per_process": 2,
            "device": {"examples_per_s": SPEEDS},
            "participation": {"drop_out": 0.2},
        }
    ],
}
"""Of four devices that are called, the first two count; others may be too late or drop out."""

LARGE = {
    "task": {**LINEAR, "dimension": 17_000, "examples_per_client": 4},
    "training": {"learning_rate": 1e-6, "local_steps": 2, "batch_size": 4},
    "server": {"rounds": 4, "aggregator": {"kind": "scaffold", "rate": 0.8}},
}


@pytest.mark.parametrize("sections", [{}, DROPPING], ids=["all", "some"])
def test_the_run_is_that_of_the_algorithm(tmp_path: Path, sections: dict[str, Any]) -> None:
    read, folder = scenario(**sections), tmp_path / "run"
    assert simulate_run(read, folder) == "completed"
    theta, c, own = recomputed(read, folder)
    np.testing.assert_allclose(last_model(folder), theta, atol=2e-5)
    np.testing.assert_allclose(last_control(folder), c, atol=1e-4)
    np.testing.assert_allclose(np.mean(list(own.values()), axis=0), c, atol=1e-9)
    with Account(folder) as account:
        outcomes = account.contributions["outcome"]
        folded = account.contributions.query("outcome == 'folded'").groupby("client")["call_round"]
        newest = folded.max().to_dict()
    assert (set(outcomes) > {"folded"}) == bool(sections), "updates that do not count"
    size = len(theta)
    for client, control in own.items():
        # After its newest update that counted, a device has this c_i, whatever it trained since.
        for held in Memory(folder / "devices" / client).held:
            if held.round == newest.get(client):
                kept = np.frombuffer(held.after.control, np.float32)
                np.testing.assert_allclose(kept, control, atol=1e-4)
            assert len(held.after.control) in (0, 4 * size)


@pytest.mark.parametrize("sections", [{}, LARGE], ids=["inline", "chunks"])
def test_both_vectors_are_counted_down_and_up(tmp_path: Path, sections: dict[str, Any]) -> None:
    read, folder = scenario(**sections), tmp_path / "run"
    assert simulate_run(read, folder) == "completed"
    with Account(folder) as account:
        sent, totals = account.contributions, account.traffic_totals
        transfers = account.transfers
    both = 2 * 4 * len(vector_of(opened(read).module()))
    assert set(sent["bytes_up"]) == set(sent["bytes_down"]) == {both}
    assert set(sent["bytes_saved"]) == {0}
    assert totals == (len(sent) * both,) * 2
    chunked = both > 65_536
    assert len(transfers) == (2 * len(sent) if chunked else 0)


def test_the_plan_and_the_ledger_agree_on_who_is_late(tmp_path: Path) -> None:
    """Two vectors of 25 parameters are 200 bytes: 0.8 s at 2 kbit/s, and 1.6 s at 1 kbit/s."""
    groups = [
        {"name": "quick", "count": 2, "link": {"down": "2 kbit/s", "up": "2 kbit/s"}},
        {"name": "slow", "count": 2, "link": {"down": "1 kbit/s", "up": "1 kbit/s"}},
    ]
    task = {**LINEAR, "dimension": 25}
    server = {"rounds": 3, "aggregator": "scaffold", "deadline_s": 2.0}
    read = scenario(groups=groups, task=task, server=server)
    assert simulate_run(read, tmp_path / "run") == "completed"
    planned = {group.name: group.late.tolist() for group in plan(read).groups}
    assert planned == {"quick": [0, 0, 0], "slow": [2, 2, 2]}
    with Account(tmp_path / "run") as account:
        sent, answers = account.contributions, account.answers
    late = sent[sent["outcome"] == "late"]["client"]
    assert len(late) == 6
    assert late.str.startswith("slow").all()
    of_quick = answers[answers["client"].str.startswith("quick")]["modelled_s"]
    np.testing.assert_allclose(of_quick, 1.6)


def test_scaffold_reaches_the_optimum_where_fedavg_does_not(tmp_path: Path) -> None:
    """Quadratic functions of clients whose curvatures and minima differ, and many local steps: the
    fixed point of fedavg is far from the minimum of the mean, and that of scaffold is the
    minimum."""
    distance = {}
    for rule in ("fedavg", "scaffold"):
        read = scenario(
            task={"name": "quadratic", "dimension": 6, "condition": 20.0, "heterogeneity": 1.0},
            training={"learning_rate": 0.2, "local_steps": 20, "batch_size": "full"},
            server={"rounds": 300, "aggregator": rule, "evaluate_every": 300},
            groups=[{"name": "dev", "count": 8}],
        )
        assert simulate_run(read, tmp_path / rule) == "completed"
        task = opened(read)
        a = [task.client(index) for index in range(8)]
        x, y = (np.concatenate([getattr(each, name) for each in a]) for name in ("x", "y"))
        optimum = np.linalg.lstsq(x.astype(float), y.astype(float).ravel())[0]
        distance[rule] = float(np.linalg.norm(last_model(tmp_path / rule) - optimum))
    assert distance["fedavg"] > 0.3
    assert distance["scaffold"] < 1e-3


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"mode": "opportunistic", "deadline_s": 4.0}, "take server.mode = 'synchronous'"),
        ({"mode": {"kind": "buffered", "k": 2}}, "take server.mode = 'synchronous'"),
        ({"privacy": {"clip": 1.0, "noise": 1.0}}, "lives on weights of its own"),
        (
            {"privacy": {"clip": 1.0, "noise": 1.0, "where": "device"}},
            "would not hide the control variates",
        ),
    ],
)
def test_servers_with_which_it_cannot_work_are_refused(sections: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        scenario(server={"rounds": 2, "aggregator": "scaffold", **sections})


@pytest.mark.parametrize(
    ("training", "said"),
    [
        ({"optimizer": {"kind": "sgd", "momentum": 0.9}}, "found training.optimizer.momentum"),
        ({"optimizer": "adam"}, "found training.optimizer = 'adam'"),
        ({"proximal_mu": 0.1}, "found training.proximal_mu"),
        ({"gradient": True}, "found training.gradient"),
        ({"projection_radius": 1.0}, "found training.projection_radius"),
        ({"clip_update": 1.0}, "found training.clip_update"),
    ],
)
def test_local_training_with_which_it_cannot_work_is_refused(
    training: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        scenario(training=training)


@pytest.mark.parametrize(
    ("group", "said"),
    [
        ({"mask": "random", "device": {"capacity": 0.5}}, "needs updates of the whole model"),
        ({"link": {"compression": "float16"}}, "link.compression = 'float16'; leave that out"),
    ],
)
def test_groups_with_which_it_cannot_work_are_refused(group: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        scenario(groups=[{"name": "dev", "count": 2, **group}])


def test_control_variates_without_a_rule_for_them_are_refused() -> None:
    with pytest.raises(ConfigError, match="'fedavg' has no control variates; leave it out"):
        scenario(training={"control_variates": True}, server={"rounds": 1})


def test_a_gradient_is_clipped_before_it_is_corrected(tmp_path: Path) -> None:
    """With one step, c_i becomes the clipped gradient, whose norm is the limit."""
    training = {"learning_rate": 0.05, "local_steps": 1, "clip_norm": 0.01}
    read = scenario(training=training, groups=[{"name": "dev", "count": 3}])
    assert simulate_run(read, tmp_path / "run") == "completed"
    for client in ("dev-0000", "dev-0001", "dev-0002"):
        records = Memory(tmp_path / "run/devices" / client).held
        assert len(records) == 2
        for held in records:
            kept = np.frombuffer(held.after.control, np.float32)
            assert np.linalg.norm(kept) == pytest.approx(0.01, rel=1e-3)
