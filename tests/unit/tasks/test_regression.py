import numpy as np
import pytest
import torch

from muster.client.training.gradients import WrittenGradient, gradient_of
from muster.common.errors import ConfigError
from muster.tasks.logistic import LogisticRegression
from muster.tasks.models import Linear, Mlp
from muster.tasks.parts import load_vector
from muster.tasks.regression import LinearRegression, OpenLinearRegression, Quadratic
from muster.tasks.task import Task


def gradient_at(
    opened: OpenLinearRegression, theta: np.ndarray, weights: list[float]
) -> np.ndarray:
    """Gradient of Σ p_i f_i by hand: p_i/n_i · Xᵀ(Xθ − y)."""
    total = np.zeros_like(theta)
    for index, weight in enumerate(weights):
        examples = opened.client(index)
        x = examples.x.astype(np.float64)
        if len(theta) > x.shape[1]:
            x = np.column_stack([x, np.ones(len(x))])
        total += weight / len(x) * x.T @ (x @ theta - examples.y)
    return total


@pytest.mark.parametrize("bias", [False, True])
def test_the_optimum_is_that_of_least_squares(bias: bool) -> None:
    task = LinearRegression(dimension=4, heterogeneity=1.0, model=Linear(bias=bias))
    opened = task.open(population=6, seed=3)
    x = opened.test().x.astype(np.float64)
    if bias:
        x = np.column_stack([x, np.ones(len(x))])
    expected = np.linalg.lstsq(x, opened.test().y.astype(np.float64))[0]
    np.testing.assert_allclose(opened.optimum(), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("bias", [False, True])
def test_the_gradient_of_the_weighted_objective_is_zero_at_its_optimum(bias: bool) -> None:
    task = LinearRegression(dimension=4, heterogeneity=1.0, model=Linear(bias=bias))
    opened = task.open(population=3, seed=3)
    weights = [0.7, 0.2, 0.1]
    optimum = opened.optimum(weights)
    np.testing.assert_allclose(gradient_at(opened, optimum, weights), 0, atol=1e-12)
    np.testing.assert_allclose(opened.optimum([7, 2, 1]), optimum, atol=1e-12)
    assert np.linalg.norm(optimum - opened.optimum()) > 0.1


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("weights", [[0.7, 0.2, 0.1], [3, 0, 1]])
@pytest.mark.parametrize("ridge", [0.0, 0.01])
def test_the_optimum_of_few_examples_is_the_one_of_least_norm(
    ridge: float, weights: list[float], bias: bool
) -> None:
    task = LinearRegression(
        dimension=40, examples_per_client=10, ridge=ridge, model=Linear(bias=bias)
    )
    opened = task.open(population=3, seed=3)
    rows = [opened.design(index) for index in range(3)]
    p = np.array(weights) / sum(weights)
    left = sum(share / 10 * x.T @ x for share, (x, _) in zip(p, rows, strict=True))
    right = sum(share / 10 * x.T @ y for share, (x, y) in zip(p, rows, strict=True))
    expected = np.linalg.pinv(left + ridge * np.eye(40 + bias), rcond=1e-10) @ right
    np.testing.assert_allclose(opened.optimum(weights), expected, atol=1e-10)


def test_the_optimum_of_very_many_parameters_takes_no_matrix_of_them() -> None:
    opened = LinearRegression(dimension=300_000, examples_per_client=5).open(2, seed=1)
    x, y = opened.test().x.astype(np.float64), opened.test().y
    np.testing.assert_allclose(x @ opened.optimum(), y, rtol=1e-6)


@pytest.mark.parametrize("dimension", [10, 500])
def test_weights_of_another_population_are_refused(dimension: int) -> None:
    with pytest.raises(ValueError, match="zip"):
        LinearRegression(dimension=dimension).open(population=3, seed=1).optimum([0.5, 0.5])


def test_without_noise_and_heterogeneity_every_client_has_the_same_optimum() -> None:
    opened = LinearRegression(noise=0.0).open(population=2, seed=5)
    np.testing.assert_allclose(opened.optimum([1, 0]), opened.optimum([0, 1]), atol=1e-6)


def test_a_clients_data_do_not_depend_on_how_many_there_are() -> None:
    few = LinearRegression(heterogeneity=0.5).open(population=3, seed=5)
    many = LinearRegression(heterogeneity=0.5).open(population=300, seed=5)
    assert few.client(2).x.tobytes() == many.client(2).x.tobytes()
    assert few.client(2).y.tobytes() == many.client(2).y.tobytes()
    assert few.client(1).x.tobytes() != few.client(2).x.tobytes()
    assert (few.examples, len(few.client(2))) == ([50, 50, 50], 50)
    with pytest.raises(IndexError):
        few.client(3)


def test_distance_is_that_to_the_optimum_and_loss_is_half_the_mean_squared_error() -> None:
    opened = LinearRegression(dimension=3).open(population=4, seed=2)
    module = opened.module()
    optimum = opened.optimum()
    at_zero = opened.metrics(module)
    assert at_zero["distance"] == pytest.approx(np.linalg.norm(optimum))
    assert at_zero["loss"] == pytest.approx(np.mean(opened.test().y ** 2) / 2, rel=1e-5)
    load_vector(module, optimum.astype(np.float32))
    assert opened.metrics(module)["distance"] < 1e-6


def test_a_model_that_is_not_linear_has_a_loss_but_no_distance() -> None:
    opened = LinearRegression(model=Mlp(hidden=[2])).open(population=2, seed=2)
    assert opened.metrics(opened.module()).keys() == {"loss"}


def test_the_loss_refuses_to_broadcast_outputs_against_values() -> None:
    # (n, 1) − (n,) would silently become (n, n).
    opened = LinearRegression().open(population=1, seed=1)
    outputs, y = torch.tensor([[1.0], [2.0]]), torch.tensor([0.0, 4.0])
    assert opened.loss(outputs, y).item() == pytest.approx((1 + 4) / 2 / 2)


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (
            LinearRegression(dimension=1_000_000),
            r"task: the examples of 30 devices are 1,500,000,0",
        ),
        (
            LinearRegression(dimension=6000, examples_per_client=300),
            r"task\.dimension: .* 6,000 unk",
        ),
        (Quadratic(dimension=5001), r"task\.dimension: .* has 5,001 unknowns"),
        (LogisticRegression(dimension=5001), r"task\.dimension: .* has 5,001 unknowns"),
    ],
)
def test_a_problem_that_is_too_large_is_refused_when_it_is_opened(task: Task, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        task.open(population=30, seed=1)


def value_of(opened: OpenLinearRegression, theta: np.ndarray, weights: list[float]) -> float:
    """Σ p_i · mean |xᵀθ − y| by hand."""
    found = 0.0
    for index, weight in enumerate(weights):
        examples = opened.client(index)
        found += weight * float(np.abs(examples.x.astype(np.float64) @ theta - examples.y).mean())
    return found


def test_the_optimum_of_absolute_deviations_cannot_be_improved() -> None:
    opened = LinearRegression(dimension=3, heterogeneity=1.0, loss="absolute").open(4, seed=3)
    weights = [0.7, 0.2, 0.1, 1e-6]
    optimum = opened.optimum(weights)
    least = value_of(opened, optimum, weights)
    random = np.random.default_rng(1)
    for size in (1e-6, 1e-3, 0.1, 1.0):
        for step in random.standard_normal((50, 3)):
            assert value_of(opened, optimum + size * step, weights) > least
    np.testing.assert_allclose(opened.optimum([7, 2, 1, 1e-5]), optimum, atol=1e-9)


def test_the_optimum_of_absolute_deviations_of_constants_is_their_weighted_median() -> None:
    task = LinearRegression(
        dimension=1, examples_per_client=1, heterogeneity=1.0, noise=0.0, loss="absolute"
    )
    opened = task.open(population=3, seed=2)
    # |xθ − y| = |x| |θ − y/x|: the weights of the median are p |x|.
    x, y = (np.concatenate([getattr(opened.client(i), name).ravel() for i in range(3)])
            for name in "xy")  # fmt: skip
    places = y.astype(np.float64) / x
    for chosen in range(3):
        weights = np.where(np.arange(3) == chosen, 3.0, 1.0) / np.abs(x)
        assert opened.optimum(weights)[0] == pytest.approx(places[chosen], rel=1e-9)


def test_absolute_deviations_have_the_data_of_squares_and_their_own_loss_and_slope() -> None:
    squares = LinearRegression(dimension=2).open(population=2, seed=1)
    opened = LinearRegression(dimension=2, loss="absolute").open(population=2, seed=1)
    np.testing.assert_array_equal(opened.client(1).y, squares.client(1).y)
    outputs = torch.tensor([[1.0], [2.0], [-3.0]], requires_grad=True)
    y = torch.tensor([0.0, 2.5, -3.0])
    loss = opened.loss(outputs, y)
    assert loss.item() == pytest.approx(0.5)
    loss.backward()  # type: ignore[no-untyped-call]
    slope = opened.slope(outputs, y)
    assert outputs.grad is not None
    torch.testing.assert_close(slope, outputs.grad)
    torch.testing.assert_close(slope, torch.tensor([[1.0], [-1.0], [0.0]]) / 3)
    assert opened.scores(outputs, y)[0].tolist() == [1.0, 0.5, 0.0]


def test_the_slope_of_absolute_deviations_is_used_in_training() -> None:
    opened = LinearRegression(loss="absolute").open(population=1, seed=1)
    module = opened.module()
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    assert isinstance(gradient_of(opened, module), WrittenGradient)


def test_absolute_deviations_have_no_ridge() -> None:
    with pytest.raises(ValueError, match="ridge: the optimum is not known"):
        LinearRegression(loss="absolute", ridge=0.1)
