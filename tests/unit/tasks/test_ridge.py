"""½ · ridge · ‖θ‖² in training, in what is reported, and in the optimum."""

from typing import Any

import numpy as np
import pytest

from muster.client.training.local import train
from muster.client.training.settings import Training
from muster.client.training.trainer import Trained
from muster.common.config import validate
from muster.server.evaluation.breakdown import Breakdown
from muster.tasks.logistic import LogisticRegression
from muster.tasks.models import Linear, Mlp
from muster.tasks.parts import load_vector
from muster.tasks.regression import LinearRegression, Quadratic
from muster.tasks.synthetic import OpenSynthetic, Synthetic
from muster.tasks.task import Examples

F32 = np.float32

TASKS = [
    LinearRegression(dimension=3, heterogeneity=1.0, ridge=0.5),
    LinearRegression(dimension=3, heterogeneity=1.0, ridge=0.5, model=Linear(bias=True)),
    LogisticRegression(dimension=3, heterogeneity=1.0, ridge=0.1),
    LogisticRegression(dimension=3, heterogeneity=1.0, ridge=0.1, model=Linear(bias=True)),
    Quadratic(dimension=3, ridge=0.2),
]


def opened(task: Synthetic, population: int = 4) -> OpenSynthetic:
    found = task.open(population, seed=2)
    assert isinstance(found, OpenSynthetic)
    return found


def trained(task: OpenSynthetic, received: np.ndarray, index: int = 0, **values: Any) -> Trained:
    return train(
        task,
        task.module(),
        received.astype(F32),
        task.client(index),
        validate(Training, {"batch_size": "full", **values}, "test"),
        seed=1,
        client="a",
        round=1,
        base_version=0,
    )


def test_every_local_step_shrinks_the_parameters() -> None:
    # One example (x, y) = (1, 3): f = ½ (θ − 3)² + ½ · 2 θ² from 1, rate ¼. Gradients 3θ − 3:
    # at 1 it is 0, and the loss is 2 + 1.
    task = LinearRegression(dimension=1, ridge=2.0).open(population=1, seed=0)
    settings = validate(Training, {"local_steps": 2, "learning_rate": 0.25}, "test")
    point = Examples(np.ones((1, 1), F32), np.full(1, 3, F32))
    names: Any = {"seed": 1, "client": "a", "round": 1, "base_version": 0}
    rests = train(task, task.module(), np.ones(1, F32), point, settings, **names)
    assert (rests.delta.tolist(), rests.loss) == ([0.0], 3.0)
    # From 2: gradient 3, to 1.25; gradient 0.75, to 1.0625. Losses ½ + 4 and 1.53125 + 1.5625.
    moves = train(task, task.module(), np.full(1, 2, F32), point, settings, **names)
    assert moves.delta.tolist() == [-0.9375]
    assert moves.loss == pytest.approx((4.5 + 3.09375) / 2)


@pytest.mark.parametrize("steps", [1, 3])
def test_a_gradient_at_the_received_parameters_has_that_of_the_ridge_once(steps: int) -> None:
    plain = LinearRegression(dimension=3).open(population=2, seed=4)
    ridged = LinearRegression(dimension=3, ridge=0.5).open(population=2, seed=4)
    at = np.array([1.0, -2.0, 4.0])
    less = trained(plain, at, gradient=True, local_steps=steps)
    more = trained(ridged, at, gradient=True, local_steps=steps)
    np.testing.assert_allclose(more.delta - less.delta, 0.5 * at, rtol=1e-5)
    assert more.loss - less.loss == pytest.approx(0.25 * 21, rel=1e-5)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
@pytest.mark.parametrize("weights", [None, [7.0, 1.0, 1.0, 0.0]])
def test_the_gradients_of_local_training_cancel_at_the_optimum(
    task: Synthetic, weights: list[float] | None
) -> None:
    found = opened(task)
    optimum = found.optimum(weights)
    gradients = [trained(found, optimum, index, gradient=True).delta for index in range(4)]
    assert np.abs(gradients).max() > 0.01
    total = np.average(gradients, axis=0, weights=weights)
    np.testing.assert_allclose(total, 0, atol=1e-6)
    scaled = [2 * weight for weight in weights or [1.0] * 4]
    np.testing.assert_allclose(found.optimum(scaled), optimum, atol=1e-12)
    without = opened(task.model_copy(update={"ridge": 0.0})).optimum(weights)
    assert np.linalg.norm(optimum) < np.linalg.norm(without)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_the_loss_that_is_reported_is_what_is_minimised(task: Synthetic) -> None:
    ridged, plain = opened(task), opened(task.model_copy(update={"ridge": 0.0}))
    module = ridged.module()
    theta = np.arange(1, 1 + len(ridged.optimum()), dtype=F32)
    load_vector(module, theta)
    penalty = task.ridge / 2 * float(theta @ theta)
    more, less = ridged.metrics(module), plain.metrics(module)
    assert more["loss"] == pytest.approx(less["loss"] + penalty)
    assert more.get("accuracy") == less.get("accuracy")
    load_vector(module, ridged.optimum().astype(F32))
    assert ridged.metrics(module)["distance"] < 1e-6


def test_devices_and_groups_are_reported_the_same() -> None:
    task = LogisticRegression(dimension=2, ridge=0.5).open(population=3, seed=1)
    module = task.module()
    load_vector(module, np.array([2, -1], F32))
    together = Breakdown(task, 3, ratio=0.0).measure(module)
    for index in range(3):
        alone = task.metrics_on(module, task.client(index))
        assert together[index].loss == pytest.approx(alone["loss"], rel=1e-6)
        assert alone["loss"] > 0.5 / 2 * 5


def test_examples_that_a_plane_divides_have_an_optimum_with_a_ridge() -> None:
    task = LogisticRegression(dimension=20, examples_per_client=5, ridge=0.01)
    found = opened(task, population=1)
    assert np.isfinite(found.optimum()).all()
    assert "distance" in found.metrics(found.module())


def test_all_parameters_of_a_network_are_penalised() -> None:
    task = LinearRegression(dimension=2, ridge=2.0, model=Mlp(hidden=[3])).open(1, seed=1)
    module = task.module()
    load_vector(module, np.full(13, 2, F32))
    assert task.penalty(module) == 13 * 4
