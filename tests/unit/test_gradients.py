"""The gradients that are written out are those of autograd."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from muster.client.training.gradients import (
    AddGradient,
    AutogradGradient,
    LayeredGradient,
    WrittenGradient,
    gradient_of,
)
from muster.tasks.classification import Digits, OpenClassification
from muster.tasks.logistic import LogisticRegression, OpenLogisticRegression
from muster.tasks.models import Linear, Mlp, Softmax
from muster.tasks.partitions import Share
from muster.tasks.regression import LinearRegression, Quadratic
from muster.tasks.task import Examples, OpenTask, Task

TASKS: dict[str, Task] = {
    "linear": LinearRegression(dimension=5),
    "linear with a constant": LinearRegression(dimension=5, model=Linear(bias=True)),
    "quadratic": Quadratic(dimension=3),
    "logistic": LogisticRegression(dimension=4, model=Linear(bias=True)),
    "digits": Digits(model=Softmax()),
}


Make = Callable[[OpenTask, nn.Module], AddGradient]


def gradients(
    opened: OpenTask, examples: Examples, make: Make = gradient_of, begin: float = 1.0
) -> tuple[type, float, list[np.ndarray]]:
    """How the gradient was computed, the loss, and the gradient of every parameter, at a fixed
    point.

    Args:
        begin: what every gradient is before.
    """
    module = opened.module()
    draws = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draws))
    for parameter in module.parameters():
        parameter.grad = torch.full_like(parameter, begin)  # gradients are added to what is there
    add = make(opened, module)
    loss = add(torch.from_numpy(examples.x), torch.from_numpy(examples.y))
    found = [
        parameter.grad.numpy() for parameter in module.parameters() if parameter.grad is not None
    ]
    return type(add), loss, found


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS.keys())
def test_written_gradients_are_those_of_autograd(task: Task) -> None:
    opened = task.open(3, 2)
    written = gradients(opened, opened.client(1))
    autograd = gradients(opened, opened.client(1), AutogradGradient)
    assert written[0] is WrittenGradient
    assert written[1] == pytest.approx(autograd[1], rel=1e-6)
    for ours, theirs in zip(written[2], autograd[2], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


class _Doubled(OpenLogisticRegression):
    """A derived task with a loss of its own, and no derivative of it."""

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return 2 * super().loss(outputs, y)


def test_a_derived_task_with_a_loss_of_its_own_is_left_to_autograd() -> None:
    values: dict[str, Any] = {"dimension": 4, "examples_per_client": 8}
    plain = LogisticRegression(**values).open(3, 2)
    doubled = _Doubled(LogisticRegression(**values), 3, 2)
    _, loss, (gradient,) = gradients(plain, plain.client(0))
    how, twice, (doubled_gradient,) = gradients(doubled, doubled.client(0))
    assert how is AutogradGradient
    assert twice == pytest.approx(2 * loss)
    np.testing.assert_allclose(doubled_gradient - 1, 2 * (gradient - 1), rtol=1e-5)


PERCEPTRON_TASKS: dict[str, Callable[[Mlp], Task]] = {
    "digits": lambda model: Digits(model=model),
    "squared error": lambda model: LinearRegression(model=model),
    "absolute error, left to autograd": lambda model: LinearRegression(
        model=model, loss="absolute"
    ),
}


@pytest.mark.parametrize("task", PERCEPTRON_TASKS.values(), ids=PERCEPTRON_TASKS.keys())
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("hidden", [[4], [64], [40, 30, 20]], ids=str)
@pytest.mark.parametrize("size", [1, 7, 32])
def test_gradients_of_hidden_layers_have_the_bits_of_autograd(
    task: Callable[[Mlp], Task], activation: Literal["relu", "tanh"], hidden: list[int], size: int
) -> None:
    model = Mlp(hidden=hidden, activation=activation)
    opened = task(model).open(3, 2)
    some = opened.client(1)
    some = Examples(some.x[:size], some.y[:size])
    how, loss, written = gradients(opened, some, begin=0.0)
    _, expected, autograd = gradients(opened, some, AutogradGradient, begin=0.0)
    assert (how, loss) == (LayeredGradient, expected)
    for ours, theirs in zip(written, autograd, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_parameters_that_are_frozen_later_are_left_to_autograd() -> None:
    opened = Digits(model=Mlp(hidden=[8])).open(3, 2)
    module = opened.module()
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    assert type(gradient_of(opened, module)) is LayeredGradient
    next(module.parameters()).requires_grad_(False)
    assert type(gradient_of(opened, module)) is AutogradGradient


def test_gradients_of_hidden_layers_are_added_to_what_is_there() -> None:
    opened = Digits(model=Mlp(hidden=[8])).open(3, 2)
    _, _, fresh = gradients(opened, opened.client(1), begin=0.0)
    _, _, added = gradients(opened, opened.client(1))
    for new, both in zip(fresh, added, strict=True):
        np.testing.assert_allclose(both, new + 1, rtol=1e-5, atol=1e-6)


class _DoubledClassification(OpenClassification):
    """A derived task with a loss of its own, whose derivative is left to autograd."""

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return 2 * super().loss(outputs, y)


def test_gradients_of_hidden_layers_are_those_of_the_loss_of_a_derived_task() -> None:
    digits = Digits(model=Mlp(hidden=[8]))
    share = Share(np.arange(20), np.arange(0))
    opened = _DoubledClassification(digits, digits.dataset(), [share], 2)
    how, loss, written = gradients(opened, opened.client(0), begin=0.0)
    _, expected, autograd = gradients(opened, opened.client(0), AutogradGradient, begin=0.0)
    assert (how, loss) == (LayeredGradient, expected)
    for ours, theirs in zip(written, autograd, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("size", [1, 3, 20, 500])
@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_the_derivative_of_the_cross_entropy_has_the_bits_of_autograd(
    size: int, scale: float
) -> None:
    opened = Digits().open(1, 2)
    draws = torch.Generator().manual_seed(size)
    outputs = scale * torch.randn((size, 10), generator=draws)
    y = torch.randint(0, 10, (size,), generator=draws)
    loss, slope = opened.loss_and_slope(outputs.clone(), y)
    expected, autograd = OpenTask.loss_and_slope(opened, outputs.clone(), y)
    assert loss == expected
    np.testing.assert_array_equal(slope.numpy(), autograd.numpy())


class _Scaled(nn.Linear):
    """A layer of a user, which computes something else."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def _frozen() -> nn.Linear:
    layer = nn.Linear(64, 8)
    layer.weight.requires_grad_(False)
    return layer


@pytest.mark.parametrize(
    "parts",
    [
        [_Scaled(64, 8), nn.ReLU(), nn.Linear(8, 10)],
        [nn.Linear(64, 8), nn.Sigmoid(), nn.Linear(8, 10)],
        [nn.Linear(64, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 10)],
        [nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10), nn.ReLU()],
        [nn.Linear(64, 8, bias=False), nn.ReLU(), nn.Linear(8, 10)],
        [_frozen(), nn.ReLU(), nn.Linear(8, 10)],
        [nn.utils.parametrizations.weight_norm(nn.Linear(64, 8)), nn.ReLU(), nn.Linear(8, 10)],
    ],
    ids=["own layer", "sigmoid", "dropout", "last", "no bias", "frozen", "weight norm"],
)
def test_other_models_are_left_to_autograd(parts: list[nn.Module]) -> None:
    module = nn.Sequential(nn.Flatten(), *parts)
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    assert type(gradient_of(Digits().open(3, 2), module)) is AutogradGradient
