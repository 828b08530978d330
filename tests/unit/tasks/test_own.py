"""A user's own functions in the place of plug-ins, and the example of them."""

import importlib
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

from muster.client.training.local import train
from muster.client.training.settings import Training
from muster.client.training.trainer import Trained
from muster.common.config import Section, validate
from muster.common.errors import ConfigError
from muster.emulator.scenario.reading import read_scenario
from muster.emulator.scenario.scenario import Scenario
from muster.tasks.parts import load_vector, vector_of
from muster.tasks.regression import LinearRegression
from muster.tasks.task import OpenTask
from muster.tasks.tasks import AnyTask, read_task

if TYPE_CHECKING:
    from decimal import Decimal

EXAMPLES = Path(__file__).parents[3] / "examples/own"
WEIGHTS, THREE = np.ones(2), np.int64(3)


@pytest.fixture(autouse=True)
def code(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module `my_code`, and the one of the examples."""
    module = types.ModuleType("my_code")
    vars(module).update({name: thing for name, thing in globals().items() if callable(thing)})
    monkeypatch.setitem(sys.modules, "my_code", module)
    monkeypatch.syspath_prepend(EXAMPLES)
    return module


def make_task(
    population: int, seed: int, *, model: Any = None, dimension: int, flat: "Decimal | None" = None
) -> OpenTask:
    return LinearRegression(model=model, dimension=dimension).open(population, seed)


def make_plain_task(population: int, seed: int, **settings: Any) -> OpenTask:
    return LinearRegression(**settings).open(population, seed)


def make_nothing(population: int, seed: int) -> None: ...


class Line(nn.Module):
    def __init__(self, inputs: tuple[int, ...], outputs: int, *, scale: float = 1.0) -> None:
        super().__init__()
        self.inner = make_model(inputs, outputs, scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.inner(x))


def make_model(inputs: tuple[int, ...], outputs: int, scale: float = 1.0) -> nn.Module:
    module = nn.Linear(inputs[0], outputs, bias=False)
    nn.init.constant_(module.weight, scale)
    return module


def make_no_model(inputs: tuple[int, ...], outputs: int) -> str:
    return "a model"


def one_argument(inputs: object) -> None: ...


def own_kind(inputs: object, outputs: object, kind: str) -> None: ...


def train_further(task, module, received, examples, settings, *, by=1.0, **named):  # type: ignore[no-untyped-def]
    trained = train(task, module, received, examples, settings, **named)
    return Trained(
        trained.delta + np.float32(by), trained.examples, trained.loss, trained.train_steps
    )


def train_badly(task, module, received, examples, settings, *, seed, client, round, base_version):  # type: ignore[no-untyped-def]
    return Trained(np.zeros(len(received)), 1, 0.0, 1)  # type: ignore[arg-type]


def half_frozen(inputs: tuple[int, ...], outputs: int) -> nn.Module:
    first = nn.Linear(inputs[0], 1).requires_grad_(False)
    return nn.Sequential(first, nn.Linear(1, outputs))


def train_everything(task, module, received, examples, settings, **named):  # type: ignore[no-untyped-def]
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(1.0)
    return Trained(np.ones_like(received), len(examples), 0.0, 1)


def train_nothing(*given: object, **named: object) -> None: ...


class Parts(Section):
    task: AnyTask
    training: Training = Training()


def parse(**values: Any) -> Parts:
    return validate(Parts, values, "scenario.toml")


def mistakes(**values: Any) -> list[str]:
    with pytest.raises(ConfigError) as error:
        parse(**values)
    return [line.strip() for line in str(error.value).splitlines()[1:]]


def trained(task: OpenTask, settings: Training, received: np.ndarray, index: int = 0) -> Trained:
    return train(
        task,
        task.module(),
        received,
        task.client(index),
        settings,
        seed=1,
        client=str(index),
        round=1,
        base_version=0,
    )


def test_a_trainer_that_moves_frozen_parameters_is_refused() -> None:
    opened = LinearRegression(
        dimension=2,
        model={"kind": "my_code:half_frozen"},  # type: ignore[arg-type]
    ).open(population=1, seed=1)
    settings = validate(Training, {"trainer": "my_code:train_everything"}, "test")
    with pytest.raises(ConfigError, match="train_everything changed frozen parameters"):
        trained(opened, settings, np.zeros(2, np.float32))
    whole = LinearRegression(dimension=2).open(population=1, seed=1)
    assert trained(whole, settings, np.zeros(2, np.float32)).delta.tolist() == [1.0, 1.0]


def test_settings_reach_the_functions() -> None:
    parts = parse(
        task={
            "name": "my_code:make_task",
            "dimension": 3,
            "model": {"kind": "my_code:make_model", "scale": 2},
        },
        training={
            "trainer": {"kind": "my_code:train_further", "by": 0.5},
            "local_steps": 1,
            "batch_size": "full",
        },
    )
    opened = parts.task.open(population=2, seed=1)
    received = vector_of(opened.module())
    assert received.tolist() == [2.0, 2.0, 2.0]
    plain = parts.training.model_copy(update={"trainer": None})
    further = trained(opened, parts.training, received)
    np.testing.assert_array_equal(
        further.delta, trained(opened, plain, received).delta + np.float32(0.5)
    )


def test_a_class_of_modules_is_a_model() -> None:
    model = {"kind": "my_code:Line", "scale": 2}
    opened = parse(task={"name": "my_code:make_task", "dimension": 3, "model": model}).task.open(
        population=2, seed=1
    )
    assert isinstance(opened.module(), Line)
    assert vector_of(opened.module()).tolist() == [2.0, 2.0, 2.0]


def test_a_function_that_takes_anything_is_given_everything() -> None:
    parts = parse(task={"name": "my_code:make_plain_task", "dimension": 4, "noise": 0.5})
    opened = parts.task.open(population=2, seed=1)
    assert opened.client(0).x.shape == (50, 4)


@pytest.mark.parametrize(
    "task",
    [
        {"name": "my_code:make_task", "dimension": 3, "model": "softmax"},
        {"name": "my_code:make_plain_task", "dimension": 3, "noise": 0.5},
        {"name": "digits", "model": {"kind": "my_code:make_model", "scale": 2.5}},
        {"name": "digits", "model": "my_code:make_model", "scale": 2.5},
        {"name": "digits", "model": {"kind": "my_code:Line", "scale": 2.5}},
    ],
)
def test_what_is_written_into_the_run_folder_or_sent_reads_as_the_same(
    task: dict[str, Any],
) -> None:
    parts = parse(task=task, training={"trainer": "my_code:train_further"})
    assert parse(**parts.model_dump(exclude_none=True)) == parts
    assert Parts.from_json(parts.to_json()) == parts
    assert read_task(parts.task.to_json()) == parts.task
    assert Training.from_json(parts.training.to_json()) == parts.training


@pytest.mark.parametrize(
    ("task", "mistake"),
    [
        ({"name": "my_code:make_task"}, "task.dimension: required, but missing"),
        (
            {"name": "my_code:make_task", "dimension": "three"},
            "task.dimension: expected a valid integer, found 'three'",
        ),
        (
            {"name": "my_code:make_task", "dimension": 3, "dimensoin": 3},
            "task.dimensoin: unknown key; did you mean 'dimension'?",
        ),
        (
            {"name": "my_code:make_plain_task", "model": "softmax"},
            "task: model: my_code:make_plain_task has no parameter of this name",
        ),
        (
            {"name": "my_code:make_nothing", "validation_ratio": 0.5},
            "task: validation_ratio: my_code:make_nothing has no parameter of this name",
        ),
        (
            {"name": "digits", "model": {"kind": "my_code:make_model", "scal": 1}},
            "task.model.scal: unknown key; did you mean 'scale'?",
        ),
        (
            {"name": "digits", "model": "my_code:one_argument"},
            (
                "task.model: my_code:one_argument takes (inputs: object) -> None, expected a "
                "function of (inputs, outputs, **settings): too many positional arguments"
            ),
        ),
        (
            {"name": "digits", "model": "my_code:own_kind"},
            (
                "task.model: my_code:own_kind takes (inputs: object, outputs: object, kind: str) "
                "-> None: 'kind' cannot be a setting"
            ),
        ),
        (
            {"name": "digits", "model": "my_code:missing"},
            "task.model: module 'my_code' has no 'missing'",
        ),
        (
            {"name": "digits", "model": "my_code:EXAMPLES"},
            "task.model: module 'my_code' has no 'EXAMPLES'",
        ),
    ],
)
def test_wrong_settings_are_refused_by_the_signature(task: dict[str, Any], mistake: str) -> None:
    assert mistakes(task=task) == [mistake]


def make_of_array(population: int, seed: int, w: Any = WEIGHTS, n: Any = THREE) -> OpenTask:
    return LinearRegression(dimension=n).open(population, seed)


def test_a_setting_that_no_process_could_get_is_refused() -> None:
    [mistake] = mistakes(task="my_code:make_of_array")
    assert mistake.startswith("task: w: expected a number, text, list or table, as a scenario can")
    assert "found array([1., 1.]) (ndarray); give a list" in mistake
    parsed = parse(task={"name": "my_code:make_of_array", "w": [1.0]})
    assert read_task(parsed.task.to_json()) == parsed.task


def test_a_trainer_that_cannot_be_called_as_muster_calls_it_is_refused() -> None:
    [mistake] = mistakes(task="digits", training={"trainer": "my_code:make_model"})
    assert mistake.startswith("training.trainer: my_code:make_model takes (inputs")
    assert "expected a function of (task, module, received, examples, settings, seed" in mistake


def test_results_of_another_kind_are_refused() -> None:
    with pytest.raises(ConfigError, match="returned None, expected an OpenTask"):
        parse(task="my_code:make_nothing").task.open(population=1, seed=1)
    task = parse(task={"name": "digits", "model": "my_code:make_no_model"}).task
    with pytest.raises(ConfigError, match=r"returned 'a model', expected a torch\.nn\.Module"):
        task.open(population=1, seed=1).module()
    opened = LinearRegression(dimension=2).open(population=1, seed=1)
    for name, message in (
        ("train_nothing", "returned None, expected a Trained"),
        ("train_badly", r"float64 of shape \(2,\), expected an array of float32 of shape \(2,\)"),
    ):
        settings = validate(Training, {"trainer": f"my_code:{name}"}, "test")
        with pytest.raises(ConfigError, match=message):
            trained(opened, settings, np.zeros(2, np.float32))


def test_the_example_of_ones_own_task_learns() -> None:
    scenario: Scenario = read_scenario(EXAMPLES / "own_task.toml")
    opened = scenario.task.open(population=3, seed=scenario.seed)
    assert type(opened) is importlib.import_module("own_task").Waves
    module = opened.module()
    losses = [opened.metrics(module)["loss"]]
    for _ in range(2):
        received = vector_of(module)
        deltas = [trained(opened, scenario.training, received, i).delta for i in range(3)]
        assert all(np.linalg.norm(delta) <= 2.0001 for delta in deltas)
        load_vector(module, received + np.mean(deltas, axis=0))
        losses.append(opened.metrics(module)["loss"])
    assert losses[0] > losses[1] > losses[2]
