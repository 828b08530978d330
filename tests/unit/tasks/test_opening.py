"""Tasks of the user's own that give what muster cannot use, and code that cannot be imported."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn

from muster.cli.commands import main
from muster.client.processes.nursery import prepare
from muster.common.errors import ConfigError
from muster.tasks.opening import opened, plain_numbers
from muster.tasks.task import Examples, OpenTask, Task
from muster.tasks.tasks import TASKS


class Slip(OpenTask):
    """Three devices with four examples each; `slip` is what is wrong."""

    def __init__(self, slip: str) -> None:
        if slip == "open":
            raise KeyError("a column")
        self.slip = slip
        self.examples: Any = np.array([4, 4, 4])
        if slip in ("one short", "one wrong", "a half"):
            self.examples = {"one short": [4, 4], "one wrong": [4, 4, 5], "a half": [4, 4, 4.5]}[
                slip
            ]

    def client(self, index: int) -> Examples:
        x = np.zeros((4, 2), np.float32)
        y: Any = np.zeros(3 if self.slip == "y" and index == 2 else 4, np.int64)
        return Examples(x, y.tolist() if self.slip == "list" else y)

    def test(self) -> Examples:
        return self.client(2)

    def module(self) -> nn.Module:
        return nn.Linear(2, 3)

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(outputs, y)


def slipping(population: int, seed: int, slip: str) -> OpenTask:
    return Slip(slip)


def task_with(slip: str) -> Task:
    parsed = TASKS.parse({"name": f"{__name__}:slipping", "slip": slip})
    assert isinstance(parsed, Task)
    return parsed


@pytest.mark.parametrize(
    ("slip", "why"),
    [
        ("open", r"slipping failed with KeyError: 'a column'"),
        ("one short", r"examples.*expected 3 numbers, one for every device, found 2"),
        ("one wrong", r"client\(2\): expected 5 examples, as `examples` says, found 4"),
        ("a half", r"expected a list of whole numbers"),
        ("y", r"client\(2\): expected as many rows of x as of y, found 4 and 3"),
        ("list", r"client\(0\): y: expected a NumPy array or a dense tensor, found list"),
    ],
)
def test_a_slip_is_refused_with_its_reason_before_a_device_starts(slip: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        prepare(opened(task_with(slip), 3, 0), None, {})


def test_counts_of_numpy_are_numbers_like_others() -> None:
    prepared = prepare(opened(task_with("none"), 3, 0), None, {})
    assert json.loads(json.dumps(prepared["examples"])) == [4, 4, 4]


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, torch.tensor])
def test_metrics_may_be_numbers_of_any_library(kind: Callable[[float], Any]) -> None:
    found = plain_numbers({"loss": kind(2), "recall": kind(0)})
    assert json.dumps(found) == '{"loss": 2.0, "recall": 0.0}'


@pytest.mark.parametrize("metrics", [{"accuracy": 1.0}, {"loss": 1.0, "x": [1]}, {"loss": "a"}])
def test_metrics_that_are_no_numbers_are_refused(metrics: Any) -> None:
    with pytest.raises(ConfigError, match="task: metrics: expected a"):
        plain_numbers(metrics)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("class Rule(:\n", "SyntaxError: invalid syntax (broken_rule.py, line 1)"),
        ("import no_such_module\n", "No module named 'no_such_module'"),
        ("x = 1\ny = x / 0\n", "ZeroDivisionError: division by zero ("),
        ("import os\nos.nothing\n", "AttributeError: module 'os' has no attribute 'nothing' ("),
        ("raise SystemExit(3)\n", "SystemExit: 3 ("),
        ("", "has no 'Rule'"),
    ],
)
def test_code_that_cannot_be_imported_costs_two_lines_and_status_2(
    text: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / "broken_rule.py").write_text(text)
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(
        'name = "x"\ntask = { name = "linear" }\n[server]\nrounds = 1\n'
        'aggregator = "broken_rule:Rule"\n[[groups]]\nname = "a"\ncount = 1\n'
    )
    done = CliRunner().invoke(main, ["run", str(scenario), "--out", str(tmp_path / "run")])
    assert done.exit_code == 2
    first, second = done.stderr.splitlines()
    assert first == f"error: {scenario}: 1 mistake"
    assert second.startswith("  server.aggregator: ")
    assert "broken_rule" in second
    assert why in second
    assert not (tmp_path / "run").exists()
