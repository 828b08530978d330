"""Metrics of a user's own task: targets, the best version, early ends, and kept versions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from muster.common.config import validate
from muster.common.errors import ConfigError, RunFailed
from muster.emulator.records.account import Account
from muster.emulator.records.judging import judge_run
from muster.emulator.records.summary import describe, other_metrics, summarise, target_text
from muster.emulator.run_audit import audit
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.faults import KillAt
from muster.simulation.whole_run import simulate_run
from muster.tasks.task import Examples, OpenTask

SCORES = [0.1, 0.3, 0.2, 0.5, 0.5, 0.4, 0.4, 0.6]
"""The metric of the versions: the model counts its rounds in its only parameter."""


class Counting(OpenTask):
    """Every round adds 1 to the only parameter."""

    def __init__(self, population: int) -> None:
        self.examples = [1] * population

    def client(self, index: int) -> Examples:
        return Examples(np.ones((1, 1), np.float32), np.ones(1, np.float32))

    test = lambda self: self.client(0)  # noqa: E731

    def module(self) -> nn.Module:
        module = nn.Linear(1, 1, bias=False)
        with torch.no_grad():
            module.weight.zero_()
        return module

    def loss(self, outputs: Any, y: Any) -> Any:
        return -outputs.mean()

    def metrics_on(self, module: nn.Module, examples: Examples) -> dict[str, float]:
        version = round(next(module.parameters()).item())
        return {"loss": 1.0, "score": SCORES[version], "error": 1 - SCORES[version]}


def counting(population: int, seed: int) -> OpenTask:
    return Counting(population)


def run(folder: Path, kills: Sequence[KillAt] = (), **server: Any) -> int:
    """Run the task; return the number of rounds."""
    values: dict[str, Any] = {
        "name": "counting",
        "seed": 1,
        "task": {"name": f"{__name__}:counting"},
        "training": {"learning_rate": 1.0},
        "server": {"rounds": 7, **server},
        "groups": [{"name": "dev", "count": 1}],
        "expect": [{"that": 'metric("score") >= 0.3'}, {"that": 'metric("nothing") >= 0'}],
    }
    simulate_run(validate(Scenario, values, "test"), folder, kills)
    assert (result := audit(folder)).agrees, result.first
    with Account(folder) as account:
        return int(account.rounds["round"].max())


def version_in(path: Path) -> int:
    """The version that a file holds, whose only parameter is its number."""
    from safetensors.numpy import load_file

    version: int = round(load_file(path)["weight"].item())
    return version


@pytest.mark.parametrize(
    ("target", "rounds"),
    [
        ({"at_least": {"score": 0.5}}, 3),
        ({"at_most": {"error": 0.8}, "loss": 1.0}, 1),
    ],
)
def test_a_target_may_name_any_metric(tmp_path: Path, target: Any, rounds: int) -> None:
    folder = tmp_path / "run"
    assert run(folder, target=target) == rounds
    with Account(folder) as account:
        summary = summarise(account)
    assert summary["target"]["reached"]
    assert next(iter([*target.get("at_least", {}), *target.get("at_most", {})])) in target_text(
        summary
    )


@pytest.mark.parametrize(
    ("best", "rounds", "version"),
    [
        ({"metric": "score", "patience": 3}, 6, 3),
        ({"metric": "error", "larger": False, "patience": 2}, 5, 3),
        ({"metric": "score", "patience": 2, "least_change": 0.35}, 2, 0),
        ({"patience": 4}, 4, 0),
    ],
)
def test_the_best_version_is_kept_and_patience_ends_the_run(
    tmp_path: Path, best: Any, rounds: int, version: int
) -> None:
    assert run(tmp_path / "run", best=best) == rounds
    assert version_in(tmp_path / "run" / "best.safetensors") == version
    assert version_in(tmp_path / "run" / "model.safetensors") == rounds


def test_a_killed_server_keeps_the_same_best_version(tmp_path: Path) -> None:
    kills = [KillAt("server", "round_committed", 3), KillAt("server", "round_opened", 5)]
    assert run(tmp_path / "run", kills, best={"metric": "score", "patience": 3}) == 6
    assert version_in(tmp_path / "run" / "best.safetensors") == 3


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ({"best": {"metric": "scores"}}, "server.best.metric: the task measures no 'scores'; th"),
        ({"target": {"at_most": {"mae": 1.0}}}, "server.target.at_most: the task measures no 'm"),
    ],
)
def test_metrics_that_nobody_measures_end_the_run(
    tmp_path: Path, server: Any, message: str
) -> None:
    with pytest.raises(RunFailed, match=message):
        run(tmp_path / "run", **server)


def test_the_best_version_needs_a_server_that_evaluates(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'server.*best: .* expected "server" or "both"'):
        run(tmp_path / "run", best={}, evaluate_on="devices")


def test_every_nth_version_is_kept(tmp_path: Path) -> None:
    run(tmp_path / "run", [KillAt("server", "round_committed", 3)], keep_versions=3)
    kept = {path.name: version_in(path) for path in (tmp_path / "run" / "versions").iterdir()}
    assert kept == {"000003.safetensors": 3, "000006.safetensors": 6}


def test_expectations_may_be_about_metrics(tmp_path: Path) -> None:
    run(tmp_path / "run")
    with Account(tmp_path / "run") as account:
        first, second = judge_run(account)
        summary = summarise(account)
    assert (first.holds, second.holds) == (True, False)
    assert other_metrics(summary["final"]) == {"score": 0.6, "error": pytest.approx(0.4)}
    assert "score 0.6, error 0.4" in describe(summary, tmp_path / "run")
