"""What a model is worth to every device and group: arithmetic that a person can do."""

import io
import json
import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch

from muster.common.errors import ConfigError
from muster.common.tensors import Vector
from muster.server.evaluation import breakdown
from muster.server.evaluation.breakdown import Breakdown
from muster.server.evaluation.messages import EvaluationResult, Order, Part, Setup
from muster.server.evaluation.parts import by_group
from muster.server.evaluation.process import main
from muster.server.evaluation.schedule import setup_of
from muster.server.settings.population import PopulationMember
from muster.server.settings.process import ServerProcess
from muster.server.settings.server import ServerSettings
from muster.tasks.parts import vector_of
from muster.tasks.task import Examples, OpenTask, predict
from muster.tasks.tasks import read_task


class Values(OpenTask):
    """A model of one weight w predicts w · x; the loss is (w · x - y)², right is within 1."""

    def __init__(self, held: list[list[tuple[float, float]]], together: bool) -> None:
        self.examples = [1] * len(held)
        self.held = held
        self.together = together
        self.asked = 0

    def client(self, index: int) -> Examples:
        return Examples(np.zeros((1, 1), np.float32), np.zeros(1, np.float32))

    def validation(self, index: int) -> Examples:
        self.asked += 1
        pairs = np.array(self.held[index], np.float32).reshape(-1, 2)
        return Examples(pairs[:, :1], pairs[:, 1])

    def test(self) -> Examples:
        return self.client(0)

    def module(self) -> "torch.nn.Module":
        linear = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.constant_(linear.weight, 2.0)
        return linear

    def loss(self, outputs: "torch.Tensor", y: "torch.Tensor") -> "torch.Tensor":
        return (outputs.squeeze(1) - y).square().mean()

    def scores(
        self, outputs: "torch.Tensor", y: "torch.Tensor"
    ) -> "tuple[torch.Tensor, torch.Tensor] | None":
        error = outputs.squeeze(1) - y
        return (error.square(), error.abs() <= 1) if self.together else None

    def metrics_on(self, module: "torch.nn.Module", examples: Examples) -> dict[str, float]:
        error = 2 * examples.x[:, 0] - examples.y
        return {"loss": float((error**2).mean()), "accuracy": float((abs(error) <= 1).mean())}


HELD: list[list[tuple[float, float]]] = [
    [(1, 2), (1, 3)],
    [],
    [(2, 0)],
    [(0, 0), (0, 1), (0, 2), (0, 3)],
]
PARTS = {
    0: Part(2, 0.5, 1.0),  # errors 0 and -1
    2: Part(1, 16.0, 0.0),  # error 4
    3: Part(4, 3.5, 0.5),  # errors 0, -1, -2, -3
}


@pytest.mark.parametrize("together", [True, False], ids=["together", "one at a time"])
@pytest.mark.parametrize("batch", [1, 2, 3, 1000])
def test_every_device_is_measured_on_its_own_examples(
    monkeypatch: pytest.MonkeyPatch, together: bool, batch: int
) -> None:
    monkeypatch.setattr(breakdown, "EVALUATION_BATCH", batch)
    task = Values(HELD, together)
    measured = Breakdown(task, 4, ratio=0.5)
    assert measured.measure(task.module()) == PARTS
    assert measured.measure(task.module()) == PARTS
    assert task.asked == 4  # examples are kept from one model to the next


def test_more_than_may_be_kept_is_made_anew() -> None:
    task = Values(HELD, together=True)
    measured = Breakdown(task, 4, ratio=0.5, kept_bytes=40)  # all are 7 · 8 bytes
    assert measured.measure(task.module()) == measured.measure(task.module()) == PARTS
    assert task.asked == 8


def test_a_group_weighs_its_devices_by_their_examples() -> None:
    # slow: (2 · 0.5 + 4 · 3.5) / 6 = 2.5 and (2 · 1 + 4 · 0.5) / 6; nobody in idle holds anything.
    groups = by_group(PARTS, ["slow", "idle", "fast", "slow"])
    assert groups == {"slow": Part(6, 2.5, 4 / 6), "fast": Part(1, 16.0, 0.0)}


def test_a_group_has_no_accuracy_where_the_task_has_none() -> None:
    assert by_group({0: Part(1, 2.0, None), 1: Part(1, 4.0, None)}, ["a", "a"]) == {
        "a": Part(2, 3.0, None)
    }


def test_a_model_that_diverged_is_measured_as_such() -> None:
    parts = {0: Part(1, math.nan, 0.0), 1: Part(1, 1.0, 1.0)}
    assert math.isnan(by_group(parts, ["a", "a"])["a"].loss)


def test_without_validation_devices_are_measured_on_what_they_train_on() -> None:
    task = Values(HELD, together=True)
    assert Breakdown(task, 4, ratio=0.0).measure(task.module()) == dict.fromkeys(
        range(4), Part(1, 0.0, 1.0)
    )


def test_a_population_that_holds_nothing_out_is_refused() -> None:
    task = Values([[], []], together=True)
    with pytest.raises(ConfigError, match=r"validation_ratio = 0\.01 no device holds out"):
        Breakdown(task, 2, ratio=0.01).measure(task.module())


TASKS = [
    '{"name": "digits", "model": "softmax", "validation_ratio": 0.2}',
    '{"name": "linear", "model": "linear", "validation_ratio": 0.2}',
]


@pytest.mark.parametrize("text", TASKS)
def test_the_tasks_of_muster_measure_together_what_they_measure_alone(text: str) -> None:
    task = read_task(text).open(7, seed=3)
    module = task.module()
    for weight in module.parameters():
        torch.nn.init.normal_(weight)
    for position, part in Breakdown(task, 7, ratio=0.2).measure(module).items():
        alone = task.metrics_on(module, task.validation(position))
        assert part.examples == len(task.validation(position)) > 0
        assert part.loss == pytest.approx(alone["loss"], rel=1e-5)
        assert part.accuracy == pytest.approx(alone.get("accuracy"))


class FromOthers(torch.nn.Module):
    """Outputs that depend on the other examples of a forward pass, in the way that is asked for."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((64, 10), 0.01))
        self.how = how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(1)
        match self.how:
            case "mean":
                x = x - x.mean(0)
            case "first":
                x = x - x[0]
            case "last":
                x = x - x[-1]
            case "neighbour":
                x = x - x.roll(1, 0)
            case "number":
                x = x * len(x)
        return torch.as_tensor(x.cumsum(1) @ self.weight.cumsum(1))


def normalised() -> torch.nn.Module:
    norm = torch.nn.BatchNorm1d(64, track_running_stats=False)
    return torch.nn.Sequential(torch.nn.Flatten(), norm, torch.nn.Linear(64, 10))


def hooked() -> torch.nn.Module:
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    module.register_forward_pre_hook(lambda own, x: (x[0] - x[0].mean(0),))
    return module


ACROSS = {
    **{how: partial(FromOthers, how) for how in ("mean", "first", "last", "neighbour", "number")},
    "batch normalisation": normalised,
    "hook": hooked,
}


@pytest.mark.parametrize("make", ACROSS.values(), ids=ACROSS.keys())
def test_a_device_gets_alone_what_it_gets_beside_others(
    make: Callable[[], torch.nn.Module],
) -> None:
    """With labels that differ from device to device, as other devices change most then."""
    text = '{"name": "digits", "partition": {"kind": "by-label", "labels_per_client": 1}}'
    task = read_task(text).open(10, seed=1)
    torch.manual_seed(3)
    module = make()
    for position, part in Breakdown(task, 10, 0.0).measure(module).items():
        alone = task.metrics_on(module, task.client(position))
        assert part.loss == pytest.approx(alone["loss"], rel=1e-5)
        assert part.accuracy == pytest.approx(alone["accuracy"])


class Own(torch.nn.Module):
    """A module of a user, of which muster knows nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.linear(x.flatten(1)))


@pytest.mark.parametrize(("own", "more"), [(False, 0), (True, 3)], ids=["known", "own"])
def test_only_unknown_modules_are_tried(
    monkeypatch: pytest.MonkeyPatch, own: bool, more: int
) -> None:
    """One batch is tried: as a whole, and its first and its last device alone."""
    passes = 0

    def counted(module: torch.nn.Module, x: np.ndarray) -> torch.Tensor:
        nonlocal passes
        passes += 1
        return predict(module, x)

    monkeypatch.setattr(breakdown, "predict", counted)
    task = read_task('{"name": "digits", "model": "softmax"}').open(10, seed=1)
    measured = Breakdown(task, 10, 0.0)
    parts = measured.measure(Own() if own else task.module())
    assert len(parts) == 10
    assert passes == 2 + more  # ten devices with 1,437 examples in two batches


class Thorough(Values):
    """A derived task with metrics of its own, whose `scores` do not know them."""

    def metrics_on(self, module: "torch.nn.Module", examples: Examples) -> dict[str, float]:
        worst = np.abs(2 * examples.x[:, 0] - examples.y).max()
        return {**super().metrics_on(module, examples), "accuracy": 0.25, "worst": worst}


def test_a_derived_task_is_measured_by_its_own_metrics() -> None:
    task = Thorough(HELD, together=True)
    parts = Breakdown(task, 4, ratio=0.5).measure(task.module())
    assert {part.accuracy for part in parts.values()} == {0.25}
    assert [part.metrics for part in parts.values()] == [{"worst": 1}, {"worst": 4}, {"worst": 3}]
    groups = by_group(parts, ["a", "a", "b", "a"])
    assert groups["a"].metrics == {"worst": pytest.approx((2 * 1 + 4 * 3) / 6)}
    assert groups["b"].metrics == {"worst": 4}


def test_a_group_has_the_metrics_that_all_of_its_devices_have() -> None:
    parts = {0: Part(1, 1.0, None, {"f1": 0.5, "area": 2.0}), 1: Part(3, 1.0, None, {"f1": 0.9})}
    assert by_group(parts, ["a", "a"])["a"].metrics == {"f1": pytest.approx(0.8)}


def evaluate(setup: Setup, model: Vector) -> EvaluationResult:
    order = Order(version=4, round=5, length=model.nbytes)
    orders = b"\n".join([setup.to_json().encode(), order.to_json().encode(), model.tobytes()])
    results = io.BytesIO()
    main(io.BytesIO(orders), results)
    return EvaluationResult.from_json(results.getvalue())


def test_the_process_measures_groups_and_devices_when_asked() -> None:
    model = vector_of(read_task(TASKS[0]).open(3, seed=3).module())
    plain = Setup(task=TASKS[0], population=3, seed=3)
    asked = plain.model_copy(update={"groups": ["big", "big", "odd"], "clients": ["a", "b", "c"]})
    measured, less = evaluate(asked, model), evaluate(plain, model)
    assert (measured.version, measured.round) == (4, 5)
    assert (measured.loss, measured.accuracy) == (less.loss, less.accuracy)
    assert not less.groups
    assert not less.devices
    # A softmax of zeros gives every class the same: the loss is ln 10, whoever is asked.
    assert measured.devices.keys() == {"a", "b", "c"}
    for part in (*measured.devices.values(), *measured.groups.values()):
        assert part.loss == pytest.approx(math.log(10), rel=1e-6)
    a, b = measured.devices["a"], measured.devices["b"]
    assert measured.groups["big"].examples == a.examples + b.examples
    assert measured.groups["odd"] == measured.devices["c"]


def test_a_result_travels_as_a_line_also_when_it_is_not_a_number() -> None:
    sent = EvaluationResult(1, 2, math.inf, None, {}, 0.5, {"g": Part(1, math.inf, None)}, {})
    assert EvaluationResult.from_json(sent.to_json()) == sent
    assert json.loads(sent.to_json())["groups"] == {"g": [1, math.inf, None, {}]}


@pytest.mark.parametrize("groups", [True, False])
@pytest.mark.parametrize("devices", [True, False])
def test_the_process_learns_who_is_who_only_when_it_must(groups: bool, devices: bool) -> None:
    config = ServerProcess(
        run="r", seed=3, clock="rounds", task="{}", training="{}", schema_=[],
        server=ServerSettings(rounds=1, evaluate_groups=groups, evaluate_devices=devices),
        population=[
            PopulationMember(client=c, group=g, examples=1) for c, g in (("a", "x"), ("b", "y"))
        ],
    )  # fmt: skip
    setup = setup_of(config)
    assert setup.population == 2
    assert setup.groups == (["x", "y"] if groups else [])
    assert setup.clients == (["a", "b"] if devices else [])
