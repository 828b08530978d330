"""A run over real processes and sockets, from the scenario to the files it leaves."""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file

from muster.cli.commands import main
from muster.client.training.settings import Training
from muster.common.errors import ConfigError
from muster.emulator import resume, run
from muster.emulator.planning import plan
from muster.emulator.report.plan_tables import warnings
from muster.emulator.run_audit import audit
from muster.emulator.scenario.population import names_of
from muster.emulator.scenario.reading import read_scenario
from muster.emulator.scenario.scenario import Scenario
from muster.server.account.journal_recovery import missing_events
from muster.server.account.ledger import Ledger
from muster.simulation.whole_run import simulate_run

if TYPE_CHECKING:
    from tests.system.conftest import MakeScenario

pytestmark = pytest.mark.usefixtures("nothing_left")


def rounds_in_numpy(scenario: Scenario) -> np.ndarray:
    """FedAvg of full-batch steps on linear regression, in float64, from the data alone."""
    task = scenario.task.open(scenario.devices, scenario.seed)
    training: Training = scenario.training
    model = np.zeros(task.client(0).x.shape[1])
    for number in range(1, scenario.server.rounds + 1):
        rate = training.learning_rate_at(number)
        total, examples = np.zeros_like(model), 0
        for index in range(scenario.devices):
            data = task.client(index)
            theta = model.copy()
            for _ in range(training.local_steps or 0):
                residual = data.x.astype(float) @ theta - data.y
                theta -= rate * data.x.T.astype(float) @ residual / len(data)
            total += len(data) * (theta - model)
            examples += len(data)
        model = model + total / examples
    return model


def test_a_run_over_sockets_equals_the_same_rounds_in_numpy(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    planned = scenario(
        training={
            "learning_rate": {"kind": "inverse", "initial": 0.1, "shift": 5.0},
            "local_steps": 4,
            "batch_size": "full",
        },
        server={"rounds": 12},
    )
    done = run(planned, out=tmp_path / "run")
    (weights,) = load_file(done.folder / "model.safetensors").values()
    np.testing.assert_allclose(weights.ravel(), rounds_in_numpy(planned), rtol=2e-5, atol=1e-6)
    assert done.summary["status"] == "completed"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One finished run of the shipped scenario, cut short."""
    shipped = Path(__file__).parents[2] / "examples/digits.toml"
    planned = read_scenario(shipped, ["server.rounds=6", "groups[0].count=4"])
    return run(planned, out=tmp_path_factory.mktemp("shipped") / "run").folder


def test_the_run_folder_holds_what_it_promises(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    promised = "scenario.toml summary.json ledger.sqlite journal.jsonl model.safetensors models "
    promised += "report.html logs devices population.csv"
    assert set(promised.split()) <= names
    assert {path.name for path in (folder / "devices").iterdir()} == {
        client for client, _ in names_of(read_scenario(folder / "scenario.toml").groups)
    }
    assert "figures" not in names  # `muster report` draws them
    assert not list(folder.rglob("*.tmp"))


def test_the_summary_agrees_with_the_ledger_and_the_model(folder: Path) -> None:
    summary = json.loads((folder / "summary.json").read_text())
    model = (folder / "model.safetensors").read_bytes()
    assert summary["model_sha256"] == hashlib.sha256(model).hexdigest()
    assert summary["status"] == "completed"
    assert (summary["rounds"], summary["updates_folded"], summary["participation_rate"]) == (
        6,
        24,
        1.0,
    )
    with sqlite3.connect(f"file:{folder}/ledger.sqlite?mode=ro", uri=True) as db:
        folded, up = db.execute(
            "SELECT count(*), sum(bytes_up) FROM contributions WHERE outcome = 'folded'"
        ).fetchone()
        (loss, accuracy) = db.execute(
            "SELECT loss, accuracy FROM rounds WHERE round = 6"
        ).fetchone()
    db.close()
    assert (folded, up) == (24, summary["bytes_up"])
    assert summary["final"]["loss"] == pytest.approx(loss)
    assert summary["final"]["accuracy"] == pytest.approx(accuracy)
    assert summary["final"]["accuracy"] > 0.6


def test_what_the_journal_lost_is_in_the_ledger(folder: Path, tmp_path: Path) -> None:
    lines = (folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
    events = [json.loads(line) for line in lines]
    ledger = Ledger(folder / "ledger.sqlite")

    def plain(event: dict[str, Any]) -> dict[str, Any]:
        return {
            key: v for key, v in event.items() if key not in ("at", "role", "incarnation", "sum")
        }

    def told_of(name: str, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        # One by one: an evaluation may come to an end while a round is written.
        return [plain(event) for event in events if event["event"] == name]

    journal = tmp_path / "journal.jsonl"
    for whole in range(len(lines)):
        # A server that was killed wrote whole lines; a power cut may leave some of one.
        for torn in (b"", lines[whole][:30], lines[whole][:-2]):
            journal.write_bytes(b"".join(lines[:whole]) + torn)
            told = [
                {"event": event.name, "at": at, **event.fields()}
                for at, event in missing_events(journal, ledger)
            ]
            assert told == sorted(told, key=lambda event: event["at"])
            for name in ("round_committed", "evaluated"):
                assert told_of(name, told) == told_of(name, events[whole:])
    assert not missing_events(folder / "journal.jsonl", ledger)
    ledger.close()


def test_the_resolved_scenario_states_every_default_and_reads_as_itself(folder: Path) -> None:
    resolved = tomllib.loads((folder / "scenario.toml").read_text())
    assert resolved["server"]["transfers"] == 8
    assert resolved["training"]["optimizer"]["kind"] == "sgd"
    assert resolved["task"]["model"]["activation"] == "relu"
    read = read_scenario(folder / "scenario.toml")
    assert tomllib.loads(read.to_toml()) == resolved


def test_the_command_prints_the_summary_as_json(folder: Path) -> None:
    done = CliRunner().invoke(main, ["run", "--resume", str(folder), "--json", "--quiet"])
    assert done.exit_code == 0, done.output
    summary = json.loads((folder / "summary.json").read_text())
    assert json.loads(done.stdout) == {"folder": str(folder), **summary}


def test_a_resumed_run_that_is_complete_stays_as_it_is(folder: Path) -> None:
    before = json.loads((folder / "summary.json").read_text())
    events = (folder / "journal.jsonl").read_bytes()
    done = resume(folder)
    assert (done.began, done.status) == (False, "completed")
    assert done.summary["model_sha256"] == before["model_sha256"]
    assert (folder / "journal.jsonl").read_bytes() == events
    said = CliRunner().invoke(main, ["run", "--resume", str(folder)])
    assert said.exit_code == 0
    assert said.stderr == "the run is complete; nothing was started\n"


@pytest.mark.parametrize("name", ["fedavg", pytest.param("agnostic", marks=pytest.mark.soak)])
def test_the_same_seed_gives_the_same_model_and_another_seed_another(
    scenario: MakeScenario, tmp_path: Path, name: str
) -> None:
    hashes = [
        run(
            scenario(seed=seed, server={"rounds": 3, "aggregator": name}),
            out=tmp_path / f"run{number}",
        ).summary["model_sha256"]
        for number, seed in enumerate((5, 5, 6))
    ]
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_large_model_travels_in_chunks_to_the_same_end(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    # 1.3 MB: two chunks each way, on the bulk channel.
    planned = scenario(
        task={"name": "digits", "model": "mlp", "hidden": [4300]},
        server={"rounds": 2, "transfers": 1, "guard": {"max_norm": 100.0}},
    )
    first, second = (run(planned, out=tmp_path / f"run{i}") for i in range(2))
    assert first.summary["model_sha256"] == second.summary["model_sha256"]
    assert first.summary["bytes_up"] == 2 * 3 * 4 * (75 * 4300 + 10)
    assert len(list((first.folder / "models").glob("*.safetensors"))) <= 2


def test_first_k_and_deadline_follow_the_modelled_durations(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    groups = [
        {"name": "quick", "count": 2, "device": {"examples_per_s": 100.0}},
        {"name": "middling", "count": 1, "device": {"examples_per_s": 10.0}},
        {"name": "slow", "count": 1, "device": {"examples_per_s": 0.1}},
    ]
    done = run(
        scenario(groups=groups, server={"rounds": 2, "goal": 2, "deadline_s": 100.0}),
        out=tmp_path / "run",
    )
    outcomes = done.ledger.contributions.groupby("client")["outcome"].agg(set).to_dict()
    assert outcomes == {
        "quick-0000": {"folded"},
        "quick-0001": {"folded"},
        "middling-0000": {"dropped"},
        "slow-0000": {"late"},
    }


def test_too_few_updates_make_an_empty_round_and_leave_the_model(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    groups = [{"name": "slow", "count": 2, "device": {"examples_per_s": 0.1}}]
    done = run(
        scenario(groups=groups, server={"rounds": 2, "deadline_s": 1.0}), out=tmp_path / "run"
    )
    assert list(done.ledger.rounds["outcome"]) == ["empty", "empty"]
    assert list(done.ledger.rounds["version"]) == [0, 0]
    assert done.summary["status"] == "completed"


def test_a_run_that_diverges_ends_as_diverged(scenario: MakeScenario, tmp_path: Path) -> None:
    done = run(
        scenario(
            training={"learning_rate": 30.0, "local_steps": 2, "batch_size": "full"},
            server={"rounds": 50},
        ),
        out=tmp_path / "run",
    )
    assert done.status == "diverged"
    assert 0 < done.summary["rounds"] < 50


def test_a_target_stops_the_run_when_it_is_reached(scenario: MakeScenario, tmp_path: Path) -> None:
    done = run(scenario(server={"rounds": 100, "target": {"loss": 2.3}}), out=tmp_path / "run")
    losses = list(done.ledger.rounds["loss"])
    assert done.summary["target"]["reached"]
    assert losses[-1] <= 2.3 < min(losses[:-1], default=math.inf)


def test_on_the_wall_clock_a_fleet_trains_too(scenario: MakeScenario, tmp_path: Path) -> None:
    done = run(
        scenario(
            clock={"kind": "wall"},
            server={"rounds": 3, "deadline_s": 60.0, "selection": {"kind": "uniform", "k": 2}},
        ),
        out=tmp_path / "run",
    )
    assert list(done.ledger.rounds["folded"]) == [2, 2, 2]


def test_gradients_are_folded_with_the_servers_step(scenario: MakeScenario, tmp_path: Path) -> None:
    """One FedSGD step over the fleet is one full-batch step of local training."""
    batch = {"learning_rate": 0.1, "batch_size": "full"}
    by_gradient = run(scenario(training={**batch, "gradient": True}), out=tmp_path / "gradient")
    by_delta = run(scenario(training={**batch, "local_steps": 1}), out=tmp_path / "delta")
    one, other = (load_file(done.folder / "model.safetensors") for done in (by_gradient, by_delta))
    for name, tensor in one.items():
        np.testing.assert_allclose(tensor, other[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("task", "count", "said"),
    [
        ({"name": "digits", "labels": [0, 77]}, 2, r"task\.labels: .* found 77"),
        ({"name": "digits"}, 2000, r"task\.partition: 2000 clients .* found 1437"),
        ({"name": "digits", "hidden": [99_999, 99_999]}, 2, r"task\.model: 10,007,.* parameters"),
    ],
    ids=["labels", "partition", "model"],
)
def test_a_task_that_cannot_be_opened_is_refused_and_nothing_is_left(
    scenario: MakeScenario, tmp_path: Path, task: dict[str, Any], count: int, said: str
) -> None:
    groups = [{"name": "d", "count": count, "devices_per_process": count}]
    with pytest.raises(ConfigError, match=said):
        run(scenario(task=task, groups=groups), out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_augmented_minibatches_are_the_same_in_processes_and_in_virtual_time(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    planned = scenario(
        task={"name": "digits", "model": "softmax"},
        training={"batch_size": 200, "augmentations": ["flip", {"kind": "crop", "padding": 1}]},
        server={"rounds": 2},
    )
    simulate_run(planned, tmp_path / "virtual")
    done = run(planned, out=tmp_path / "run")
    name = "model.safetensors"
    assert (done.folder / name).read_bytes() == (tmp_path / "virtual" / name).read_bytes()


def test_augmentations_that_do_not_fit_are_refused_and_nothing_is_left(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    np.savez(tmp_path / "rows.npz", x=np.ones((40, 5), np.float32), y=np.arange(40) % 2)
    task = {"name": "own", "source": {"kind": "npz", "path": str(tmp_path / "rows.npz")}}
    with pytest.raises(ConfigError, match=r"flip: expected pictures .* shape .*, 5.; leave it out"):
        run(scenario(task=task, training={"augmentations": ["flip"]}), out=tmp_path / "run")
    assert [each.name for each in tmp_path.iterdir()] == ["rows.npz"]


def test_users_without_a_device_are_told_of_and_the_run_passes_its_audit(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    site = np.repeat(["a", "b", "c", "d", "e"], 8)
    np.savez(tmp_path / "rows.npz", x=np.ones((40, 2)), y=np.arange(40) % 2, site=site)
    source = {"kind": "npz", "path": str(tmp_path / "rows.npz"), "user": "site"}
    task = {"name": "own", "source": source, "partition": "natural", "model": "softmax"}
    planned = scenario(task=task, server={"rounds": 1})
    said = "2 of the 5 users of the data have no device, so their examples are left out"
    assert any(line.startswith(f"warning: {said}") for line in warnings(plan(planned)))
    done = run(planned, out=tmp_path / "run")
    assert [event["warning"].partition(";")[0] for event in done.ledger.events("warned")] == [said]
    assert (result := audit(done.folder)).agrees, result.first
