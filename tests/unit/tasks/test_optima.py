"""The problems whose optimum is known; least squares of data are in test_regression.py."""

import numpy as np
import pytest
import torch

from muster.client.training.local import train
from muster.client.training.settings import Training
from muster.common.config import validate
from muster.tasks.logistic import LogisticRegression, OpenLogisticRegression
from muster.tasks.models import Linear, Mlp
from muster.tasks.parts import load_vector, vector_of
from muster.tasks.regression import OpenQuadratic, Quadratic
from muster.tasks.synthetic import Synthetic
from muster.tasks.task import OpenTask


def gradient(opened: OpenTask, index: int, theta: np.ndarray) -> np.ndarray:
    settings = validate(Training, {"batch_size": "full", "gradient": True}, "test")
    return train(
        opened,
        opened.module(),
        theta.astype(np.float32),
        opened.client(index),
        settings,
        seed=1,
        client="a",
        round=1,
        base_version=0,
    ).delta.astype(np.float64)


def parts(opened: OpenQuadratic, index: int) -> tuple[np.ndarray, np.ndarray]:
    """A_i and θ_i, from the gradients A_i (θ − θ_i) at the unit vectors and at 0."""
    x, y = opened.design(index)
    matrix = x.T @ x / len(x)
    return matrix, np.linalg.solve(matrix, x.T @ y / len(x))


def test_a_clients_loss_is_its_quadratic_function() -> None:
    opened = Quadratic(dimension=4, condition=20.0).open(population=3, seed=1)
    assert isinstance(opened, OpenQuadratic)
    for index in range(3):
        matrix, theta = parts(opened, index)
        eigenvalues = np.linalg.eigvalsh(matrix)
        assert (eigenvalues[0], eigenvalues[-1]) == pytest.approx((1 / 20, 1), rel=1e-5)
        at = np.array([1.0, -2.0, 0.5, 3.0])
        expected = matrix @ (at - theta)
        np.testing.assert_allclose(gradient(opened, index, at), expected, rtol=0, atol=1e-5)
        module = opened.module()
        load_vector(module, at.astype(np.float32))
        value = (at - theta) @ matrix @ (at - theta) / 2
        assert opened.metrics_on(module, opened.client(index))["loss"] == pytest.approx(
            value, rel=1e-5
        )


def test_the_optimum_of_quadratics_is_the_closed_form() -> None:
    opened = Quadratic(dimension=5).open(population=4, seed=2)
    weights = [0.4, 0.3, 0.2, 0.1]
    both = [parts(opened, index) for index in range(4)]
    left = sum(p * matrix for p, (matrix, _) in zip(weights, both, strict=True))
    right = sum(p * matrix @ theta for p, (matrix, theta) in zip(weights, both, strict=True))
    np.testing.assert_allclose(opened.optimum(weights), np.linalg.solve(left, right), atol=1e-10)
    # The test set is every client's rows, so its loss is the mean of the functions.
    module = opened.module()
    load_vector(module, opened.optimum().astype(np.float32))
    losses = [opened.metrics_on(module, opened.client(index))["loss"] for index in range(4)]
    measured = opened.metrics(module)
    assert measured["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert measured["distance"] < 1e-6


@pytest.mark.parametrize("dimension", [1, 2])
def test_quadratics_have_any_dimension(dimension: int) -> None:
    opened = Quadratic(dimension=dimension).open(population=2, seed=2)
    assert opened.metrics(opened.module())["distance"] > 0


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("weights", [None, [5.0, 1.0, 1.0]])
def test_the_logistic_gradient_is_zero_at_the_optimum(
    bias: bool, weights: list[float] | None
) -> None:
    task = LogisticRegression(dimension=3, heterogeneity=0.5, model=Linear(bias=bias))
    opened = task.open(population=3, seed=1)
    optimum = opened.optimum(weights)
    assert optimum.shape == (3 + bias,)
    total = np.zeros(len(optimum))
    for index, weight in enumerate(weights or [1.0, 1.0, 1.0]):
        x, y = opened.design(index)
        total += weight * x.T @ (1 / (1 + np.exp(-x @ optimum)) - y) / len(y)
    np.testing.assert_allclose(total, 0, atol=1e-13)


def test_logistic_metrics_are_those_of_hand_arithmetic() -> None:
    opened = LogisticRegression(dimension=2).open(population=2, seed=3)
    module = opened.module()
    at_zero = opened.metrics(module)
    assert at_zero["loss"] == pytest.approx(np.log(2))
    assert at_zero["distance"] == pytest.approx(np.linalg.norm(opened.optimum()))
    load_vector(module, opened.optimum().astype(np.float32))
    test = opened.test()
    z = test.x @ opened.optimum()
    measured = opened.metrics(module)
    assert measured["loss"] == pytest.approx(np.mean(np.logaddexp(0, z) - test.y * z), rel=1e-5)
    assert measured["accuracy"] == pytest.approx(np.mean((z > 0) == (test.y > 0)))
    assert measured["distance"] < 1e-6
    assert set(np.unique(test.y)) == {0, 1}


def test_examples_that_a_plane_divides_have_no_optimum_and_no_distance() -> None:
    opened = LogisticRegression(dimension=20, examples_per_client=5).open(population=1, seed=1)
    assert isinstance(opened, OpenLogisticRegression)
    assert np.isnan(opened.optimum()).all()
    assert opened.metrics(opened.module()).keys() == {"loss", "accuracy"}


TASKS = [
    Quadratic(dimension=3),
    LogisticRegression(dimension=3),
    LogisticRegression(dimension=3, model=Mlp(hidden=[3])),
]


@pytest.mark.parametrize("task", TASKS, ids=["quadratic", "logistic", "logistic-mlp"])
def test_clients_do_not_depend_on_how_many_there_are_and_scores_are_the_loss(
    task: Synthetic,
) -> None:
    few, many = task.open(population=3, seed=5), task.open(population=30, seed=5)
    assert few.client(2).x.tobytes() == many.client(2).x.tobytes()
    assert few.client(2).y.tobytes() == many.client(2).y.tobytes()
    assert few.client(1).x.tobytes() != few.client(2).x.tobytes()
    assert few.examples == [len(few.client(index)) for index in range(3)]
    module = few.module()
    load_vector(module, np.ones_like(vector_of(module)))
    examples = few.client(0)
    outputs, y = module(torch.from_numpy(examples.x)), torch.from_numpy(examples.y)
    scores = few.scores(outputs, y)
    assert scores is not None
    losses, right = scores
    assert losses.mean().item() == pytest.approx(few.loss(outputs, y).item())
    if right is not None:
        assert right.double().mean().item() == few.metrics_on(module, examples)["accuracy"]
