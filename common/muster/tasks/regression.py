"""Synthetic linear regression, whose optimum is known exactly."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from pydantic import NonNegativeFloat, PositiveInt, field_validator

from muster.common.seeds import stream
from muster.tasks.models import AnyModel, Linear, Softmax, initial_module, initial_vector
from muster.tasks.task import Examples, OpenTask, Task, held_out

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

Parameters = npt.NDArray[np.float64]


class LinearRegression(Task):
    """Client i draws x ~ N(0, I) and y = xᵀθ_i + noise · N(0, 1).

    θ_i = θ₀ + heterogeneity · N(0, I), with θ₀ ~ N(0, I). Each client's data come from a stream of
    its own and do not depend on how many clients there are. The loss is half the mean squared
    error; the test set is all clients' examples together.
    """

    model: AnyModel = Linear(kind="linear")
    """What is trained."""

    dimension: PositiveInt = 10
    """Length of x."""

    examples_per_client: PositiveInt = 50
    """Examples of each client."""

    noise: NonNegativeFloat = 0.1
    """Standard deviation of what x does not explain."""

    heterogeneity: NonNegativeFloat = 0.0
    """Standard deviation, in every coordinate, of a client's θ_i around θ₀."""

    @field_validator("model")
    @classmethod
    def _predicts_values(cls, model: AnyModel) -> AnyModel:
        if isinstance(model, Softmax):
            raise ValueError("softmax chooses between classes; expected linear or mlp here")
        return model

    def open(self, population: int, seed: int) -> OpenLinearRegression:
        return OpenLinearRegression(self, population, seed)


class OpenLinearRegression(OpenTask):
    """Linear regression for a population; a client's data are drawn when they are asked for."""

    def __init__(self, task: LinearRegression, population: int, seed: int) -> None:
        each = task.examples_per_client
        self.examples = [len(held_out(each, task.validation_ratio, seed, 0)[0])] * population
        self._task = task
        self._seed = seed
        self._theta = stream(seed, "linear", "theta").standard_normal(task.dimension)

    def client(self, index: int) -> Examples:
        return self._parts(index)[0]

    def validation(self, index: int) -> Examples:
        return self._parts(index)[1]

    def _parts(self, index: int) -> tuple[Examples, Examples]:
        """What a client trains on, and what it holds for validation."""
        drawn, ratio = self._drawn(index), self._task.validation_ratio
        if ratio == 0:
            return drawn, drawn.take(slice(0))
        rows, out = held_out(len(drawn), ratio, self._seed, index)
        return drawn.take(rows), drawn.take(out)

    def _drawn(self, index: int) -> Examples:
        task = self._task
        random = stream(self._seed, "linear", "client", range(len(self.examples))[index])
        x = random.standard_normal((task.examples_per_client, task.dimension), dtype=np.float32)
        noise = random.standard_normal(task.examples_per_client)
        theta = self._theta + task.heterogeneity * random.standard_normal(task.dimension)
        return Examples(x, (x @ theta + task.noise * noise).astype(np.float32))

    def test(self) -> Examples:
        clients = [self.client(index) for index in range(len(self.examples))]
        return Examples(
            np.concatenate([client.x for client in clients]),
            np.concatenate([client.y for client in clients]),
        )

    def module(self) -> nn.Module:
        return initial_module(self._task.model, (self._task.dimension,), 1, self._seed)

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        error = outputs.squeeze(1) - y  # (batch,)
        return error.square().mean() / 2

    def scores(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, None]:
        return (outputs.squeeze(1) - y).square() / 2, None

    def metrics(self, module: nn.Module) -> dict[str, float]:
        """Return the loss and, of a linear model, the `distance` ‖θ − θ*‖ to the optimum."""
        metrics = super().metrics(module)
        if isinstance(self._task.model, Linear):
            difference = initial_vector(module) - self.optimum()
            metrics["distance"] = np.linalg.norm(difference).item()
        return metrics

    def optimum(self, weights: Sequence[float] | Parameters | None = None) -> Parameters:
        """Return the minimiser of Σ p_i f_i, f_i the loss of a linear model on client i's examples.

        Where several minimise, the one of least norm: the one that gradient descent from 0 finds.

        Args:
            weights: p, one for each client, up to a factor; by examples if absent.

        Returns:
            Shape (parameters,): the slopes, then the constant if the model has one.
        """
        return self._optimum if weights is None else self._minimiser(weights)

    @cached_property
    def _optimum(self) -> Parameters:
        return self._minimiser(self.examples)

    def _minimiser(self, weights: Sequence[float] | Parameters) -> Parameters:
        # Normal equations: Σ p_i XᵢᵀXᵢ/nᵢ θ = Σ p_i Xᵢᵀyᵢ/nᵢ.
        constant = isinstance(self._task.model, Linear) and self._task.model.bias
        parameters = self._task.dimension + constant
        left, right = np.zeros((parameters, parameters)), np.zeros(parameters)
        for index, weight in zip(range(len(self.examples)), weights, strict=True):
            examples = self.client(index)
            x = examples.x.astype(np.float64)
            if constant:
                x = np.column_stack([x, np.ones(len(x))])
            left += weight / len(x) * (x.T @ x)
            right += weight / len(x) * (x.T @ examples.y)
        return np.linalg.lstsq(left, right)[0].astype(np.float64)
