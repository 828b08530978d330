"""Models in files of cloudpickle: what another process gets, and what is refused."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from muster.common.errors import ConfigError
from muster.emulator.records.inputs import changes, inputs_of
from muster.emulator.scenario.local_work import needs_trial
from muster.emulator.scenario.reading import read_scenario
from muster.tasks.models import MODELS, initial_module
from muster.tasks.parts import vector_of
from muster.tasks.pickled import Pickled, pickled


def model_of(folder: Path, model: Any) -> Pickled:
    (folder / "model.pkl").write_bytes(pickled(model))
    return Pickled(kind="pickled", path=str(folder / "model.pkl"))


def built(folder: Path, model: Any, seed: int = 1) -> nn.Module:
    return initial_module(model_of(folder, model), (4,), 3, seed)


def bits(module: nn.Module) -> bytes:
    return bytes(vector_of(module).tobytes())


def test_a_module_begins_with_its_values_whatever_the_seed(tmp_path: Path) -> None:
    module = nn.Linear(4, 3)
    assert bits(built(tmp_path, module, seed=1)) == bits(module) == bits(built(tmp_path, module, 2))


def test_a_module_is_not_changed_by_what_is_built_from_it(tmp_path: Path) -> None:
    module = nn.Linear(4, 3)
    before = bits(module)
    with torch.no_grad():
        next(built(tmp_path, module).parameters()).zero_()
    assert bits(module) == before


FUNCTIONS: dict[str, Callable[..., nn.Module]] = {
    "without arguments": lambda: nn.Linear(4, 3),
    "of inputs and outputs": lambda inputs, outputs: nn.Linear(inputs[0], outputs),
    "with a setting": lambda inputs, outputs, bias=True: nn.Linear(inputs[0], outputs, bias=bias),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_what_a_function_draws_comes_from_the_seed(
    tmp_path: Path, function: Callable[..., nn.Module]
) -> None:
    assert bits(built(tmp_path, function, 1)) == bits(built(tmp_path, function, 1))
    assert bits(built(tmp_path, function, 1)) != bits(built(tmp_path, function, 2))


SCRIPT = """
import sys
from pathlib import Path
from torch import nn
import helping
from muster.tasks.pickled import pickled

WIDTH = 5
class Net(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs[0], WIDTH), nn.Linear(WIDTH, outputs))
    def forward(self, x):
        return helping.twice(self.layers(x))
Path(sys.argv[1]).write_bytes(pickled(Net))
"""


def test_another_process_needs_neither_the_script_nor_the_files_beside_it(tmp_path: Path) -> None:
    (tmp_path / "helping.py").write_text("def twice(x):\n    return 2 * x\n")
    script, path = tmp_path / "script.py", tmp_path / "model.pkl"
    script.write_text(SCRIPT)
    subprocess.run([sys.executable, script, path], check=True)
    script.unlink()
    (tmp_path / "helping.py").unlink()
    module = Pickled(kind="pickled", path=str(path)).build((4,), 3)
    x = torch.ones(2, 4)
    layers: Any = module.layers
    assert torch.equal(module(x), 2 * layers(x))
    assert layers[0].out_features == 5


class Locked(nn.Module):
    """A module that no other process can have."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def forward(self, x: Tensor) -> Tensor:
        return x


def test_a_model_that_cannot_be_sent_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"that can be sent to other processes, found TypeError"):
        pickled(Locked())


def test_a_module_with_a_parametrization_is_made_by_a_function() -> None:
    def make() -> nn.Module:
        made: nn.Module = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
        return made

    assert pickled(make)
    with pytest.raises(ConfigError, match=r"parametrization, .* give a function that makes"):
        pickled(make())


REFUSED: dict[str, tuple[Any, str]] = {
    "a number": (lambda: 3, r"gave 3, expected a torch\.nn\.Module or a function"),
    "three arguments": (lambda a, b, c: nn.Linear(1, 1), r"takes \(a, b, c\), expected one that"),
}


@pytest.mark.parametrize(("function", "message"), REFUSED.values(), ids=REFUSED)
def test_a_function_that_makes_no_module_is_refused(
    tmp_path: Path, function: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        built(tmp_path, function)


@pytest.mark.parametrize("content", [b"", b"no pickle", pickled(nn.Linear(1, 1))[:-40], None])
def test_another_file_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "model.pkl"
    if content is not None:
        path.write_bytes(content)
    model = MODELS.parse({"kind": "pickled", "path": str(path)})
    assert isinstance(model, Pickled)
    with pytest.raises(ConfigError, match=r"model\.pkl: expected a model that muster\.torch wrote"):
        model.build((4,), 3)


SCENARIO = """
name = "pickles"
[task]
name = "digits"
{model}
[server]
rounds = 2
[[groups]]
name = "a"
count = 2
"""


@pytest.mark.parametrize(
    "model",
    ['model = "pickled"\npath = "model.pkl"', '[task.model]\nkind = "pickled"\npath = "model.pkl"'],
)
def test_a_run_is_bound_to_the_file_of_its_model(tmp_path: Path, model: str) -> None:
    model_of(tmp_path, nn.Linear(64, 10))
    (tmp_path / "a.toml").write_text(SCENARIO.format(model=model))
    scenario = read_scenario(tmp_path / "a.toml")
    assert needs_trial(scenario.task, scenario.training)
    (tmp_path / "scenario.toml").write_text(scenario.to_toml())
    before = inputs_of(tmp_path)
    assert [row.name for row in before if row.kind == "file"] == [str(tmp_path / "model.pkl")]
    model_of(tmp_path, nn.Linear(64, 10))
    assert [change.kind for change in changes(before, tmp_path)] == ["file"]


def test_predictions_are_those_of_the_module(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).eval()
    x = torch.from_numpy(np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4))
    assert torch.equal(built(tmp_path, module).eval()(x), module(x))
