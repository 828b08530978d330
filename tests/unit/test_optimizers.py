"""Local optimizers against torch.optim, which devices do not use, and clipping by hand."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from muster.client.training.local import train
from muster.client.training.optimizers import BUILT_IN, OPTIMIZERS, Optimizer
from muster.client.training.settings import Training
from muster.client.training.trainer import Trained
from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.tasks.classification import Digits
from muster.tasks.models import Mlp
from muster.tasks.parts import vector_of
from muster.tasks.regression import LinearRegression
from muster.tasks.task import Examples, OpenTask

F32 = np.float32
STEPS = 8

DIGITS = Digits(model=Mlp(hidden=[5])).open(population=20, seed=3)
ONE_D = LinearRegression(dimension=1).open(population=1, seed=0)
TWO_D = LinearRegression(dimension=2).open(population=1, seed=0)

# ½ ‖θ − (3, 4)‖² in effect: its gradient at the origin is −(3, 4), of norm 5.
THREE_FOUR = Examples(
    np.array([[2, 0], [0, 2]], F32) / F32(2**0.5), np.array([3, 4], F32) * F32(2**0.5)
)


def parse(**values: Any) -> Training:
    return validate(Training, {"batch_size": "full", **values}, "test")


def mistakes(**values: Any) -> list[str]:
    with pytest.raises(ConfigError) as error:
        parse(**values)
    return [line.strip() for line in str(error.value).splitlines()[1:]]


def run(
    opened: OpenTask,
    received: np.ndarray,
    examples: Examples | None = None,
    *,
    round: int = 1,
    **values: Any,
) -> Trained:
    return train(
        opened,
        opened.module(),
        received,
        opened.client(0) if examples is None else examples,
        parse(**values),
        seed=7,
        client="phones-0001",
        round=round,
        base_version=0,
    )


def torch_delta(optimizer: type[torch.optim.Optimizer], **settings: Any) -> np.ndarray:
    """The delta after STEPS full-batch steps on the digits of the first client, by torch.optim."""
    module, examples = DIGITS.module(), DIGITS.client(0)
    before = vector_of(module)
    steps = optimizer(module.parameters(), **settings)
    for _ in range(STEPS):
        steps.zero_grad()
        outputs = module(torch.from_numpy(examples.x))
        torch.autograd.backward(DIGITS.loss(outputs, torch.from_numpy(examples.y)))
        steps.step()
    return vector_of(module) - before


def trained_delta(**values: Any) -> np.ndarray:
    received = vector_of(DIGITS.module())
    return run(DIGITS, received, local_steps=STEPS, **values).delta


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True},
        {"weight_decay": 0.1},
        {"momentum": 0.8, "weight_decay": 0.1},
        {"momentum": 0.8, "nesterov": True, "weight_decay": 0.1},
    ],
    ids=str,
)
def test_sgd_takes_the_steps_of_torch(settings: dict[str, Any]) -> None:
    found = trained_delta(optimizer={"kind": "sgd", **settings}, learning_rate=0.05)
    expected = torch_delta(torch.optim.SGD, lr=0.05, **settings)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert np.abs(expected).max() > 0.01


@pytest.mark.parametrize(
    ("settings", "theirs"),
    [
        ({}, {"weight_decay": 0.0}),
        ({"weight_decay": 0.5}, {"weight_decay": 0.5}),
        (
            {"beta1": 0.5, "beta2": 0.9, "epsilon": 1e-3, "weight_decay": 0.1},
            {"betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1},
        ),
    ],
    ids=str,
)
def test_adam_takes_the_steps_of_torchs_adamw(
    settings: dict[str, Any], theirs: dict[str, Any]
) -> None:
    found = trained_delta(optimizer={"kind": "adam", **settings}, learning_rate=0.01)
    expected = torch_delta(torch.optim.AdamW, lr=0.01, **theirs)
    # Where a gradient is about as small as epsilon, its rounding shows in the step.
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-6)
    assert np.abs(expected).max() > 0.01


def test_plain_sgd_has_the_same_bits_however_it_is_written() -> None:
    deltas = {
        trained_delta(**values).tobytes()
        for values in (
            {},
            {"optimizer": "sgd"},
            {"optimizer": {"kind": "sgd", "momentum": 0.0, "weight_decay": 0.0}},
            {"clip_norm": 1e6, "clip_update": 1e6},
        )
    }
    assert len(deltas) == 1


@pytest.mark.parametrize("kind", BUILT_IN)
def test_a_step_changes_nothing_but_its_arguments(kind: str) -> None:
    # The same tensors give the same step, whatever the optimizer did before.
    settings = {"momentum": 0.9} if kind == "sgd" else {}
    optimizer = OPTIMIZERS.parse({"kind": kind, **settings})
    assert isinstance(optimizer, Optimizer)
    results = []
    for _ in range(2):
        theta = torch.tensor([1.0, -2.0])
        state = optimizer.initial_state(theta)
        for number, gradient in enumerate(([0.5, 1.0], [-3.0, 0.25]), 1):
            optimizer.step(theta, torch.tensor(gradient), state, rate=0.1, number=number)
        results.append((theta.tolist(), {name: value.tolist() for name, value in state.items()}))
    assert results[0] == results[1]


@pytest.mark.parametrize("kind", BUILT_IN)
def test_the_state_begins_anew_in_every_round(kind: str) -> None:
    optimizer = {"kind": "sgd", "momentum": 0.9} if kind == "sgd" else {"kind": kind}
    received = np.zeros(2, F32)
    first, second = (
        run(TWO_D, received, THREE_FOUR, local_steps=3, optimizer=optimizer, round=round).delta
        for round in (1, 2)
    )
    assert first.tobytes() == second.tobytes()


def test_adam_is_projected_and_pulled_back_as_sgd_is() -> None:
    # The first step of Adam has length η in every entry: (0.5, 0.5), projected onto radius 0.5.
    adam: dict[str, Any] = {"optimizer": "adam", "learning_rate": 0.5}
    zero = np.zeros(2, F32)
    near = run(TWO_D, zero, THREE_FOUR, local_steps=1, projection_radius=0.5, **adam)
    np.testing.assert_allclose(near.delta, [0.5**1.5] * 2, rtol=1e-6)
    free = run(TWO_D, zero, THREE_FOUR, local_steps=40, **adam)
    held = run(TWO_D, zero, THREE_FOUR, local_steps=40, proximal_mu=9.0, **adam)
    # The minimum of ½ ‖θ − (3, 4)‖² + ½ · 9 ‖θ‖² is (0.3, 0.4).
    np.testing.assert_allclose(free.delta, [3, 4], atol=0.5)
    np.testing.assert_allclose(held.delta, [0.3, 0.4], atol=0.2)


def test_momentum_and_the_proximal_term_act_together() -> None:
    # f = ½ (θ − 3)² from 1, rate 0.5, μ = 1, momentum 0.5. Step 1: v = −2, θ = 2.
    # Step 2: g = (2 − 3) + (2 − 1) = 0, v = −1, θ = 2.5.
    examples = Examples(np.array([[1]], F32), np.array([3], F32))
    optimizer = {"kind": "sgd", "momentum": 0.5}
    values: dict[str, Any] = {"learning_rate": 0.5, "proximal_mu": 1.0, "optimizer": optimizer}
    assert run(ONE_D, np.ones(1, F32), examples, local_steps=2, **values).delta.tolist() == [1.5]


# --- clipping ------------------------------------------------------------------------------------


def test_a_long_gradient_is_scaled_to_the_norm_before_the_step() -> None:
    # The gradient −(3, 4) of norm 5 becomes −(1.2, 1.6). At (1.2, 1.6) it is −(1.8, 2.4), of norm
    # 3, and becomes −(1.2, 1.6) again.
    values: dict[str, Any] = {"learning_rate": 1.0, "clip_norm": 2.0}
    zero = np.zeros(2, F32)
    first = run(TWO_D, zero, THREE_FOUR, local_steps=1, **values)
    second = run(TWO_D, zero, THREE_FOUR, local_steps=2, **values)
    third = run(TWO_D, zero, THREE_FOUR, local_steps=3, **values)
    np.testing.assert_allclose(first.delta, [1.2, 1.6], rtol=1e-6)
    np.testing.assert_allclose(second.delta, [2.4, 3.2], rtol=1e-6)
    np.testing.assert_allclose(third.delta, [3.0, 4.0], rtol=1e-6)  # norm 1 is not clipped


def test_weight_decay_is_added_to_the_clipped_gradient() -> None:
    # From (1, 0): the gradient (1, 0) − (3, 4) = (−2, −4) has norm √20 and becomes (−1, −2) / √5.
    # Weight decay 0.5 adds (0.5, 0).
    optimizer = {"kind": "sgd", "weight_decay": 0.5}
    values: dict[str, Any] = {"learning_rate": 1.0, "clip_norm": 1.0, "optimizer": optimizer}
    received = np.array([1, 0], F32)
    found = run(TWO_D, received, THREE_FOUR, local_steps=1, **values)
    np.testing.assert_allclose(found.delta, [5**-0.5 - 0.5, 2 * 5**-0.5], rtol=1e-5)


def test_a_long_update_is_scaled_to_the_norm_at_the_end() -> None:
    # The first step reaches the optimum (3, 4), where the second stays.
    values: dict[str, Any] = {"learning_rate": 1.0, "local_steps": 2}
    found = run(TWO_D, np.zeros(2, F32), THREE_FOUR, clip_update=2.0, **values)
    np.testing.assert_allclose(found.delta, [1.2, 1.6], rtol=1e-6)
    assert found.loss == pytest.approx(12.5 / 2)  # training itself was not clipped
    short = run(TWO_D, np.zeros(2, F32), THREE_FOUR, clip_update=6.0, **values)
    np.testing.assert_allclose(short.delta, [3, 4], rtol=1e-6)


def test_a_returned_gradient_is_clipped_as_an_update() -> None:
    found = run(TWO_D, np.zeros(2, F32), THREE_FOUR, gradient=True, clip_update=1.0)
    np.testing.assert_allclose(found.delta, [-0.6, -0.8], rtol=1e-6)


def test_a_gradient_whose_square_is_too_large_for_float32_is_clipped_too() -> None:
    huge = Examples(np.array([[1]], F32), np.array([1e30], F32))
    found = run(ONE_D, np.zeros(1, F32), huge, local_steps=1, learning_rate=1.0, clip_norm=2.0)
    np.testing.assert_allclose(found.delta, [2.0], rtol=1e-6)


# --- settings ------------------------------------------------------------------------------------


def test_plain_sgd_may_be_written_with_its_settings() -> None:
    assert parse(optimizer={"kind": "sgd", "momentum": 0.0}).optimizer == parse().optimizer


@pytest.mark.parametrize(
    ("optimizer", "said"),
    [
        ("adagrad", "optimizer: there is no optimizer called 'adagrad'; there are: adam, sgd"),
        ({"momentum": 0.9}, "optimizer: kind is required: the name of one of ['adam', 'sgd']"),
        (
            {"kind": "sgd", "nesterov": True},
            "optimizer: nesterov = true needs a momentum above 0, for example 0.9",
        ),
        ({"kind": "sgd", "momentum": 1.0}, "optimizer.momentum: expected less than 1, found 1.0"),
        ({"kind": "adam", "beta2": 1.0}, "optimizer.beta2: expected less than 1, found 1.0"),
        ({"kind": "adam", "epsilon": 0.0}, "optimizer.epsilon: expected at least 1e-12, found 0.0"),
        (
            {"kind": "adam", "weight_decay": -0.1},
            "optimizer.weight_decay: expected at least 0, found -0.1",
        ),
        ({"kind": "adam", "momentum": 0.9}, "optimizer.momentum: unknown key"),
    ],
    ids=str,
)
def test_a_wrong_optimizer_is_one_mistake_that_says_what_is_expected(
    optimizer: object, said: str
) -> None:
    [mistake] = mistakes(optimizer=optimizer)
    assert mistake.startswith(said)


def test_clipping_to_nothing_is_refused() -> None:
    assert len(mistakes(clip_norm=0.0, clip_update=-1.0)) == 2


@pytest.mark.parametrize(
    "optimizer", ["sgd", "adam", {"kind": "sgd", "momentum": 0.9, "nesterov": True}], ids=str
)
def test_an_optimizer_is_sent_to_devices_with_its_settings(optimizer: object) -> None:
    settings = parse(optimizer=optimizer, clip_norm=1.0, clip_update=2.0)
    assert Training.from_json(settings.to_json()) == settings


def test_optimizers_are_read_without_torch() -> None:
    code = (
        "import sys; from muster.client.training.settings import Training; Training(); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
