import ctypes
import math
import re
import sys
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import muster.client.training.local as training
from muster.client.training.local import minibatches, train, training_thread
from muster.client.training.settings import Training
from muster.client.training.trainer import Trained
from muster.common.config import validate
from muster.common.errors import RemoteProtocolError
from muster.common.seeds import stream
from muster.tasks.classification import Digits
from muster.tasks.models import Linear, Mlp
from muster.tasks.parts import vector_of
from muster.tasks.regression import LinearRegression
from muster.tasks.task import Examples, OpenTask

F32 = np.float32


def settings(**values: Any) -> Training:
    return validate(Training, {"batch_size": "full", **values}, "test")


def run(
    opened: OpenTask,
    received: np.ndarray,
    wanted: Training,
    *,
    examples: Examples | None = None,
    module: nn.Module | None = None,
    client: str = "phones-0001",
    round: int = 1,
) -> Trained:
    return train(
        opened,
        module or opened.module(),
        received,
        opened.client(0) if examples is None else examples,
        wanted,
        seed=7,
        client=client,
        round=round,
        base_version=0,
    )


def line(*points: tuple[float, float]) -> Examples:
    """Examples (x, y) of a regression in one dimension."""
    x, y = zip(*points, strict=True)
    return Examples(np.array(x, F32).reshape(-1, 1), np.array(y, F32))


ONE_D = LinearRegression(dimension=1).open(population=1, seed=0)


@pytest.mark.parametrize("bias", [False, True])
def test_full_batch_steps_are_those_of_a_numpy_calculation(bias: bool) -> None:
    opened = LinearRegression(dimension=4, model=Linear(bias=bias)).open(population=2, seed=1)
    examples = opened.client(1)
    x, y = examples.x.astype(np.float64), examples.y.astype(np.float64)
    if bias:
        x = np.column_stack([x, np.ones(len(x))])
    received = np.arange(x.shape[1], dtype=F32)
    theta, losses = received.astype(np.float64), []
    for _ in range(6):
        error = x @ theta - y
        losses.append(np.mean(error**2) / 2)
        theta -= 0.1 * x.T @ error / len(x)
    trained = run(opened, received, settings(local_steps=6), examples=examples)
    np.testing.assert_allclose(trained.delta, theta - received, rtol=1e-5)
    assert trained.loss == pytest.approx(np.mean(losses), rel=1e-5)
    assert (trained.examples, trained.train_steps) == (50, 6)
    assert trained.delta.dtype == F32


def test_the_rate_is_that_of_the_round() -> None:
    # f = ½ (θ·1 − 3)², gradient −3 at 0; round 3 of inverse with shift 2 halves the rate 0.5.
    rate = {"kind": "inverse", "initial": 0.5, "shift": 2}
    wanted = settings(local_steps=1, learning_rate=rate)
    trained = run(ONE_D, np.zeros(1, F32), wanted, examples=line((1, 3)), round=3)
    assert trained.delta.tolist() == [0.75]


def test_parameters_are_projected_onto_the_ball_after_every_step() -> None:
    # f = ½ ‖θ − (3, 4)‖² in effect: one step of rate 1 from 0 lands on (3, 4), outside radius 2.
    x, y = np.array([[math.sqrt(2), 0], [0, math.sqrt(2)]], F32), np.array([3, 4], F32)
    examples = Examples(x, y * F32(math.sqrt(2)))
    opened = LinearRegression(dimension=2).open(population=1, seed=0)
    wanted = settings(local_steps=3, learning_rate=1.0, projection_radius=2.0)
    trained = run(opened, np.zeros(2, F32), wanted, examples=examples)
    np.testing.assert_allclose(trained.delta, [1.2, 1.6], rtol=1e-6)
    # The losses are those before each step: at 0, then twice 3 away on the sphere of radius 2.
    assert trained.loss == pytest.approx((12.5 + 4.5 + 4.5) / 3, rel=1e-6)


def test_parameters_inside_the_ball_are_left_alone() -> None:
    free = run(ONE_D, np.zeros(1, F32), settings(local_steps=3))
    inside = run(ONE_D, np.zeros(1, F32), settings(local_steps=3, projection_radius=1e3))
    assert inside.delta.tobytes() == free.delta.tobytes()


def test_the_proximal_term_pulls_back_towards_the_received_parameters() -> None:
    # f = ½ (θ − 3)² from 1, rate 0.5, μ = 1. Step 1: −(1 − 3) → θ = 2. Step 2: gradient
    # (2 − 3) + 1·(2 − 1) = 0 → θ = 2. Without the term step 2 would reach 2.5.
    wanted = settings(local_steps=2, learning_rate=0.5, proximal_mu=1.0)
    trained = run(ONE_D, np.ones(1, F32), wanted, examples=line((1, 3)))
    assert trained.delta.tolist() == [1.0]
    assert trained.loss == pytest.approx((2.0 + 0.5) / 2)  # of the data alone


def test_gradient_mode_returns_the_mean_minibatch_gradient_at_the_received_parameters() -> None:
    # Gradients at θ = 1 of ½ (x θ − y)²: x (x − y) = −2 and 2·(2 + 1) = 6, mean 2.
    examples = line((1, 3), (2, -1))
    for wanted in (
        settings(gradient=True),
        settings(gradient=True, local_steps=5),
        settings(gradient=True, local_epochs=1, batch_size=1),
    ):
        trained = run(ONE_D, np.ones(1, F32), wanted, examples=examples)
        assert trained.delta.tolist() == [2.0]
    one = run(ONE_D, np.ones(1, F32), settings(gradient=True, batch_size=1), examples=examples)
    assert one.delta.tolist() in ([-2.0], [6.0])
    assert one.train_steps == 1


def test_the_clients_gradients_cancel_at_the_optimum() -> None:
    opened = LinearRegression(dimension=3, heterogeneity=1.0).open(population=4, seed=2)
    optimum = opened.optimum().astype(F32)
    gradients = [
        run(opened, optimum, settings(gradient=True), examples=opened.client(index)).delta
        for index in range(4)
    ]
    assert np.abs(gradients).max() > 0.1
    np.testing.assert_allclose(np.mean(gradients, axis=0), 0, atol=1e-6)


@pytest.mark.parametrize("gradient", [False, True])
def test_no_steps_change_nothing_and_have_no_loss(gradient: bool) -> None:
    wanted = settings(local_steps=0, gradient=gradient)
    trained = run(ONE_D, np.ones(1, F32), wanted)
    assert trained.delta.tolist() == [0.0]
    assert math.isnan(trained.loss)
    assert trained.train_steps == 0


def test_a_client_without_examples_takes_no_steps() -> None:
    nobody = Examples(np.zeros((0, 1), F32), np.zeros(0, F32))
    trained = run(ONE_D, np.ones(1, F32), settings(local_steps=5), examples=nobody)
    assert (trained.delta.tolist(), trained.train_steps) == ([0.0], 0)


class WithDropout(Mlp):
    """Draws from torch's generator while it trains."""

    def build(self, inputs: tuple[int, ...], outputs: int) -> nn.Module:
        return nn.Sequential(super().build(inputs, outputs), nn.Dropout(0.3))


def test_training_is_a_pure_function_of_its_arguments() -> None:
    opened = Digits(model=WithDropout(hidden=[5])).open(population=20, seed=3)
    received = vector_of(opened.module())
    kept, wanted = received.copy(), settings(local_epochs=2, batch_size=16)
    first = run(opened, received, wanted)
    # Another state of the world: torch's generator, and a module that was used for something else.
    module = opened.module()
    run(opened, np.ones_like(received), settings(local_steps=1), module=module, round=9)
    torch.rand(3)
    again = run(opened, received, wanted, module=module)
    assert again.delta.tobytes() == first.delta.tobytes()
    assert again.loss == first.loss
    assert received.tobytes() == kept.tobytes()


def test_a_delta_is_not_touched_by_later_training_of_the_same_module() -> None:
    module = ONE_D.module()
    for gradient in (False, True):
        wanted = settings(local_steps=1, gradient=gradient)
        first = run(ONE_D, np.zeros(1, F32), wanted, module=module)
        kept = first.delta.copy()
        run(ONE_D, np.ones(1, F32), settings(local_steps=3), module=module)
        assert first.delta.tobytes() == kept.tobytes()


def test_clients_and_rounds_draw_minibatches_of_their_own() -> None:
    wanted, zero = settings(local_steps=1, batch_size=5), np.zeros(1, F32)
    deltas = {
        run(ONE_D, zero, wanted, client=client, round=round).delta.tobytes()
        for client in ("a", "b")
        for round in (1, 2)
    }
    assert len(deltas) == 4


def test_received_parameters_may_be_a_view_of_what_came_from_the_wire() -> None:
    received = np.frombuffer(np.ones(1, F32).tobytes(), F32)
    writable = run(ONE_D, np.ones(1, F32), settings(local_steps=2))
    assert run(ONE_D, received, settings(local_steps=2)).delta.tolist() == writable.delta.tolist()


def test_parameters_of_another_model_are_refused() -> None:
    with pytest.raises(RemoteProtocolError, match=r"version 0 .* \(2,\).*needs \(1,\)"):
        run(ONE_D, np.zeros(2, F32), settings())


def batches(examples: int, **values: Any) -> list[list[int]]:
    every = torch.arange(examples)
    draws = partial(stream, 1, "batches")
    found = minibatches(examples, settings(**values), draws)
    return [(every if rows is None else every[rows]).tolist() for rows in found]


def test_an_epoch_visits_every_example_once_and_keeps_the_smaller_last_batch() -> None:
    found = batches(10, batch_size=4, local_epochs=2)
    assert [len(batch) for batch in found] == [4, 4, 2, 4, 4, 2]
    first, second = list(chain(*found[:3])), list(chain(*found[3:]))
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second


def test_steps_are_drawn_without_replacement_and_reshuffled_when_exhausted() -> None:
    epochs = batches(10, batch_size=4, local_epochs=3)
    assert batches(10, batch_size=4, local_steps=5) == epochs[:5]
    assert batches(10, batch_size=4, local_steps=1) == epochs[:1]
    assert batches(10, batch_size=4, local_steps=9) == epochs


@pytest.mark.parametrize("batch_size", ["full", 10, 64])
def test_a_batch_that_holds_everything_is_taken_in_order(batch_size: int | str) -> None:
    assert batches(10, batch_size=batch_size, local_steps=2) == [list(range(10))] * 2


def test_digits_are_learned() -> None:
    opened = Digits(model=Mlp(hidden=[32])).open(population=1, seed=1)
    module = opened.module()
    wanted = settings(local_epochs=8, batch_size=16, learning_rate=0.2)
    trained = run(opened, vector_of(module), wanted, module=module)
    assert trained.train_steps == 8 * 90
    # The module is left with the trained parameters.
    assert opened.metrics(module)["accuracy"] > 0.93


def test_the_fingerprint_says_what_decides_the_bits() -> None:
    assert training.fingerprint() == {
        "torch": torch.__version__,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "device": "cpu",
        "threads": torch.get_num_threads(),
    }


def test_warming_up_does_not_import_the_compiler() -> None:
    before = set(sys.modules)
    training.warm()
    assert not [name for name in sys.modules.keys() - before if name.startswith("torch._dynamo")]


def test_a_training_thread_has_one_core_whatever_the_machine_has() -> None:
    openmp = _openmp()
    with training_thread() as thread:
        assert thread.submit(openmp.omp_get_max_threads).result() == 1


def _openmp() -> ctypes.CDLL:
    """Torch's own OpenMP: asked by way of torch, a thread is given what it is asked for."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    found = {line.split()[-1] for line in lines if re.search(r"/torch/lib/lib(g|i)?omp\b", line)}
    assert found, "torch came without OpenMP"
    return ctypes.CDLL(found.pop())
