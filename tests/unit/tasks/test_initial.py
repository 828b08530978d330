"""Initial values of a model from a file."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from muster.common.errors import ConfigError
from muster.emulator.scenario.reading import named_files, read_scenario
from muster.tasks.opening import opened
from muster.tasks.parts import schema

SCENARIO = """
name = "begun"
[task]
name = "digits"
model = { kind = "mlp", hidden = [4] }
initial = "models/first.safetensors"
[server]
rounds = 1
[[groups]]
name = "dev"
count = 2
"""


def begun(
    folder: Path, entries: dict[str, Tensor] | bytes | None, **task: Any
) -> dict[str, Tensor]:
    """The entries of the module of a scenario whose file has these entries."""
    (folder / "models").mkdir(exist_ok=True)
    path = folder / "models" / "first.safetensors"
    if isinstance(entries, bytes):
        path.write_bytes(entries)
    elif entries is not None:
        save_file(entries, path)
    (folder / "scenario.toml").write_text(SCENARIO)
    settings = [(f"task.{key}", value) for key, value in task.items()]
    scenario = read_scenario(folder / "scenario.toml", settings)
    return opened(scenario.task, 2, seed=1).module().state_dict()


FIRST = "hidden1.weight"


@pytest.fixture
def built(tmp_path: Path) -> dict[str, Tensor]:
    """The entries as they are built."""
    (tmp_path / "scenario.toml").write_text(SCENARIO.replace("initial = ", "# "))
    task = read_scenario(tmp_path / "scenario.toml").task
    return dict(opened(task, 2, seed=1).module().state_dict())


def test_entries_of_the_file_are_taken_and_others_are_built(
    tmp_path: Path, built: dict[str, Tensor]
) -> None:
    one = torch.ones_like(built[FIRST])
    found = begun(tmp_path, {FIRST: one})
    for name, value in built.items():
        assert torch.equal(found[name], one if name == FIRST else value)


def test_patterns_choose_entries(tmp_path: Path, built: dict[str, Tensor]) -> None:
    ones = {name: torch.ones_like(value) for name, value in built.items()}
    found = begun(tmp_path, ones | {"other": torch.ones(3)}, initial_names=["hidden1.*"])
    for name, value in built.items():
        expected = ones[name] if name.startswith("hidden1.") else value
        assert torch.equal(found[name], expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hiden1.weight": torch.ones(1)}, "has hiden1.weight, which the model has not; it"),
        ({FIRST: torch.ones(3, 3)}, r"hidden1.weight of .* has shape \(3, 3\), the model needs"),
        ({FIRST: torch.ones(4, 64, dtype=torch.int64)}, "is torch.int64, the model needs torch.fl"),
        ({FIRST: torch.full((4, 64), torch.nan)}, "has values that are not finite"),
        (b"no such format", "expected .* in the format of safetensors, found"),
        (None, "there is no file .*; the path is relative to the scenario's file"),
    ],
)  # fmt: skip
def test_other_files_are_refused(tmp_path: Path, change: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"task.initial: .*{message}"):
        begun(tmp_path, change)


def test_a_pattern_that_matches_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"task.initial_names: no entry .* 'head\.\*'; it has x"):
        begun(tmp_path, {"x": torch.ones(1)}, initial_names=["head.*"])


def test_patterns_without_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "scenario.toml").write_text(SCENARIO.replace("initial = ", "initial_names = [] # "))
    with pytest.raises(ConfigError, match="give the file as initial"):
        read_scenario(tmp_path / "scenario.toml")


def test_the_run_is_bound_to_the_file(tmp_path: Path, built: dict[str, Tensor]) -> None:
    begun(tmp_path, dict(built))
    scenario = read_scenario(tmp_path / "scenario.toml")
    path = tmp_path / "models" / "first.safetensors"
    assert list(named_files(json.loads(scenario.to_json()))) == [path]
    assert set(load_file(path)) == set(built)
    assert schema(opened(scenario.task, 2, seed=1).module()).parameters
