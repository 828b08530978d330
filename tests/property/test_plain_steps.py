"""Local steps of any module are those of autograd and torch.optim.

The modules have what a user may do to a layer: freezing, hooks, parametrizations, subclasses, tied
weights. The fast gradients of muster must recognise each of them, because they ignore it.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from muster.client.training.gradients import AutogradGradient, gradient_of
from muster.client.training.local import train
from muster.client.training.settings import Training
from muster.common.config import validate
from muster.common.tensors import Vector
from muster.tasks.classification import Digits
from muster.tasks.parts import load_vector, vector_of
from muster.tasks.task import OpenTask

STEPS, RATE = 3, 0.05
OPENED = Digits().open(40, 3)

Twist = Callable[[nn.Sequential], object]


class Doubled(nn.Linear):
    """A subclass that computes something else."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class OtherParameter(nn.Parameter):
    """A subclass of parameters."""


def last(module: nn.Sequential) -> nn.Linear:
    layer = module[-1]
    assert isinstance(layer, nn.Linear)
    return layer


def own_forward(module: nn.Sequential) -> None:
    layer = last(module)
    layer.forward = lambda input: nn.functional.linear(input, layer.weight, layer.bias) / 2  # type: ignore[method-assign]


def quarter(weight: Tensor) -> None:
    assert weight.grad is not None
    weight.grad.div_(4)


def tied(module: nn.Sequential) -> None:
    layer = nn.Linear(4, 4)
    for place in (-1, -1):
        module.insert(len(module) + place, nn.Tanh())
        module.insert(len(module) + place, layer)


def another(module: nn.Sequential) -> None:
    module.register_parameter("scale", nn.Parameter(torch.tensor([0.5])))
    module.register_forward_hook(lambda own, _, outputs: outputs * own.scale)


TWISTS: dict[str, Twist] = {
    "none": lambda module: None,
    "forward hook": lambda m: last(m).register_forward_hook(lambda own, x, y: y / 4),
    "forward hook of the whole": lambda m: m.register_forward_hook(lambda own, x, y: y / 4),
    "hook of flatten": lambda m: m[0].register_forward_hook(lambda own, x, y: y / 4),
    "forward pre-hook": lambda m: last(m).register_forward_pre_hook(lambda own, x: (x[0] / 4,)),
    "backward hook": lambda m: last(m).register_full_backward_pre_hook(
        lambda own, slopes: (slopes[0] / 4,)  # type: ignore[index]
    ),
    "hook of a gradient": lambda m: last(m).weight.register_hook(  # type: ignore[no-untyped-call]
        lambda gradient: gradient / 4
    ),
    "hook after a gradient": lambda m: last(m).weight.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
        quarter
    ),
    "parametrization": lambda m: nn.utils.parametrizations.weight_norm(last(m)),
    "old weight norm": lambda m: nn.utils.weight_norm(last(m)),
    "subclass": lambda m: m.__setitem__(-1, Doubled(last(m).in_features, 10)),
    "own forward": own_forward,
    "parameter of a subclass": lambda m: setattr(
        last(m), "weight", OtherParameter(last(m).weight.detach())
    ),
    "parameter of the whole": another,
    "tied layers": tied,
    "without the last bias": lambda m: last(m).register_parameter("bias", None),
}

OPTIMIZERS: dict[str, tuple[dict[str, Any], Callable[[list[nn.Parameter]], torch.optim.Optimizer]]]
OPTIMIZERS = {
    "sgd": (
        {"kind": "sgd", "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
        lambda moved: torch.optim.SGD(
            moved, lr=RATE, momentum=0.9, nesterov=True, weight_decay=0.1
        ),
    ),
    "adam": (
        {"kind": "adam", "weight_decay": 0.1, "epsilon": 1e-3},
        lambda moved: torch.optim.AdamW(moved, lr=RATE, weight_decay=0.1, eps=1e-3),
    ),
}


def made(hidden: int, twist: str, frozen: frozenset[int]) -> nn.Sequential:
    """A module of some hidden layers, which is the same for the same arguments."""
    torch.manual_seed(hidden)
    parts: list[nn.Module] = []
    width = 64
    for number in range(hidden):
        parts += [nn.Linear(width, 4), (nn.ReLU, nn.Tanh)[number % 2]()]
        width = 4
    module = nn.Sequential(nn.Flatten(), *parts, nn.Linear(width, 10))
    TWISTS[twist](module)
    parameters = [*module.parameters()]
    for number, parameter in enumerate(parameters):
        if number in frozen and not {n % len(parameters) for n in range(len(parameters))} <= frozen:
            parameter.requires_grad_(False)
    return module


def by_torch(
    opened: OpenTask, module: nn.Module, optimizer: str, received: Vector
) -> tuple[Vector, float]:
    """What plain autograd and torch.optim make of the received parameters, and the loss."""
    load_vector(module, received)
    examples = opened.client(0)
    x, y = torch.from_numpy(examples.x), torch.from_numpy(examples.y)
    chosen = OPTIMIZERS[optimizer][1]([p for p in module.parameters() if p.requires_grad])
    losses = []
    for _ in range(STEPS):
        chosen.zero_grad()
        loss = opened.loss(module.train()(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        losses.append(loss.item())
        chosen.step()
    return vector_of(module) - received, sum(losses) / STEPS


@pytest.mark.filterwarnings("ignore:Full backward hook:UserWarning")
@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize("twist", TWISTS)
@settings(max_examples=8)
@given(
    hidden=st.integers(0, 2),
    frozen=st.frozensets(st.integers(0, 5), max_size=3),
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
)
def test_steps_are_those_of_autograd_and_torch_optim(
    twist: str, hidden: int, frozen: frozenset[int], optimizer: str
) -> None:
    if twist == "tied layers":
        hidden = 2
    module = made(hidden, twist, frozen)
    received = vector_of(module)
    fixed = [p for p in module.parameters() if not p.requires_grad]
    before = [p.detach().clone() for p in fixed]
    wanted, loss = by_torch(OPENED, made(hidden, twist, frozen), optimizer, received)
    values = {
        "optimizer": OPTIMIZERS[optimizer][0],
        "learning_rate": RATE,
        "local_steps": STEPS,
        "batch_size": "full",
    }
    named: dict[str, Any] = {"seed": 5, "client": "dev", "round": 1, "base_version": 0}
    training = validate(Training, values, "test")
    found = train(OPENED, module, received, OPENED.client(0), training, **named)
    np.testing.assert_allclose(found.delta, wanted, rtol=1e-3, atol=2e-5)
    assert found.loss == pytest.approx(loss, rel=1e-5)
    assert all(map(torch.equal, fixed, before))


def _globally(hook: Callable[..., Any]) -> AbstractContextManager[Any]:
    return nn.modules.module.register_module_forward_hook(hook)


def test_a_hook_of_all_modules_is_left_to_autograd() -> None:
    module = made(0, "none", frozenset())
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    assert type(gradient_of(OPENED, module)) is not AutogradGradient
    with _globally(lambda own, x, y: None):
        assert type(gradient_of(OPENED, module)) is AutogradGradient


def test_a_loss_of_one_object_is_left_to_autograd() -> None:
    opened = Digits().open(40, 3)
    module = made(0, "none", frozenset())
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    opened.loss = lambda outputs, y: outputs.square().mean()  # type: ignore[method-assign]
    assert type(gradient_of(opened, module)) is AutogradGradient
