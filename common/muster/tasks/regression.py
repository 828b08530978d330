"""Synthetic linear regression, by least squares or least absolute deviations, and quadratic
functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from muster.common.bounds import Count, NotNegative
from muster.common.seeds import stream
from muster.tasks.models import Linear
from muster.tasks.synthetic import OpenSynthetic, Parameters, Synthetic
from muster.tasks.task import Examples

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from torch import Tensor


class LinearRegression(Synthetic):
    """Client i draws x ~ N(0, I) and y = xᵀθ_i + noise · N(0, 1).

    θ_i = θ₀ + heterogeneity · N(0, I), with θ₀ ~ N(0, I). Each client's data come from a stream of
    its own and do not depend on the number of clients. The test set consists of all clients'
    training examples.
    """

    loss: Literal["squared", "absolute"] = "squared"
    """The loss: half the mean squared error, or the mean absolute error, which is convex but not
    smooth. The data are the same. With "absolute" there may be several optima; `distance` is that
    to one of them."""

    examples_per_client: Count = 50
    """Number of examples of each client."""

    noise: NotNegative = 0.1
    """Standard deviation of the noise in y."""

    @model_validator(mode="after")
    def _has_a_linear_program(self) -> Self:
        if self.loss == "absolute" and self.ridge:
            raise ValueError(
                f"ridge: the optimum is not known with a ridge and loss = 'absolute'; expected 0, "
                f"found {self.ridge:g}"
            )
        return self

    def open(self, population: int, seed: int) -> OpenLinearRegression:
        kind = OpenLeastAbsolute if self.loss == "absolute" else OpenLinearRegression
        return kind(self, population, seed)


class Quadratic(Synthetic):
    """Client i minimises f_i(θ) = ½ (θ − θ_i)ᵀ A_i (θ − θ_i).

    θ_i = θ₀ + heterogeneity · N(0, I), with θ₀ ~ N(0, I). A_i = Q_i Λ_i Q_iᵀ, where Q_i is a random
    basis. The eigenvalues are 1, 1/condition and others between them, drawn evenly on a logarithmic
    scale. Rates up to 1 surely converge, and 1/condition decides how fast. The minimiser of
    Σ p_i f_i is (Σ p_i A_i)⁻¹ Σ p_i A_i θ_i.

    A client's examples are the rows x of √dimension · Λ_i^½ Q_iᵀ with y = xᵀθ_i, so half the mean
    squared error is f_i. Minibatches give stochastic gradients, and "full" gives exact ones.
    """

    heterogeneity: NotNegative = 1.0
    """Standard deviation, in every coordinate, of a client's θ_i around θ₀."""

    condition: Annotated[float, Field(ge=1, le=1e9)] = 10.0
    """Ratio of the largest eigenvalue of A_i to the smallest."""

    @model_validator(mode="after")
    def _is_the_function(self) -> Self:
        if not isinstance(self.model, Linear) or self.model.bias:
            raise ValueError(
                "model: a quadratic function is a function of θ itself; expected linear, without a "
                "bias"
            )
        if self.validation_ratio:
            raise ValueError(
                "validation_ratio: the examples of quadratic are its function, and none can be "
                f"left out; expected 0, found {self.validation_ratio}"
            )
        return self

    def open(self, population: int, seed: int) -> OpenQuadratic:
        return OpenQuadratic(self, population, seed)


class _LeastSquares(OpenSynthetic):
    """An open problem whose loss is half the mean squared error."""

    @staticmethod
    def unknowns(task: Synthetic, examples: int) -> int:
        return min(task.parameters, examples)  # see `_combination`

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        error = outputs.squeeze(1) - y  # (batch,)
        return error.square().mean() / 2

    def slope(self, outputs: Tensor, y: Tensor) -> Tensor:
        return (outputs - y.unsqueeze(1)) / y.shape[0]

    def loss_and_slope(self, outputs: Tensor, y: Tensor) -> tuple[float, Tensor]:
        error = outputs.squeeze(1) - y  # (batch,)
        loss: float = (error.square().mean() / 2).item()
        return loss, error.mul_(2).mul_(0.5 / len(y)).unsqueeze(1)

    def scores(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, None]:
        return (outputs.squeeze(1) - y).square() / 2, None

    def minimiser(self, weights: Sequence[float] | Parameters) -> Parameters:
        if sum(self.examples) < self._dimension:
            return self._combination(weights)
        # Normal equations: (Σ p_i XᵢᵀXᵢ/nᵢ + ridge I) θ = Σ p_i Xᵢᵀyᵢ/nᵢ, here times Σ weights.
        left, right = np.zeros(()), np.zeros(())
        for index, weight in zip(range(len(self.examples)), weights, strict=True):
            x, y = self.design(index)
            left = left + weight / len(x) * (x.T @ x)
            right = right + weight / len(x) * (x.T @ y)
        left = left + self.ridge * sum(weights) * np.eye(len(right))
        return np.linalg.lstsq(left, right)[0].astype(np.float64)

    def _combination(self, weights: Sequence[float] | Parameters) -> Parameters:
        """Return `minimiser` if there are fewer examples than parameters, maybe very many of those.

        It is a combination of the examples, θ = Aᵀα with (A Aᵀ + ridge Σ p_i I) α = b, where client
        i has the rows √(p_i/nᵢ) Xᵢ of A and √(p_i/nᵢ) yᵢ of b.
        """
        rows, values = [], []
        for index, weight in zip(range(len(self.examples)), weights, strict=True):
            x, y = self.design(index)
            share = np.sqrt(weight / len(x))
            rows.append(share * x)
            values.append(share * y)
        a, b = np.concatenate(rows), np.concatenate(values)
        left = a @ a.T + self.ridge * sum(weights) * np.eye(len(b))
        combination: Parameters = a.T @ np.linalg.lstsq(left, b)[0]
        return combination


class OpenLinearRegression(_LeastSquares):
    """An open linear regression, for a population."""

    streams: ClassVar = "linear"

    def __init__(self, task: LinearRegression, population: int, seed: int) -> None:
        super().__init__(task, task.examples_per_client, population, seed)
        self._task = task

    def drawn(self, index: int) -> Examples:
        task = self._task
        random = stream(self._seed, "linear", "client", index)
        x = random.standard_normal((task.examples_per_client, task.dimension), dtype=np.float32)
        noise = random.standard_normal(task.examples_per_client)
        values = self.responses(x, self.theta_of(index, random)) + task.noise * noise
        return Examples(x, values.astype(np.float32))


class OpenLeastAbsolute(OpenLinearRegression):
    """An open linear regression whose loss is the mean absolute error."""

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return (outputs.squeeze(1) - y).abs().mean()

    def slope(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return a subgradient: 0 where an error is 0."""
        return (outputs - y.unsqueeze(1)).sign() / y.shape[0]

    def scores(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, None]:
        return (outputs.squeeze(1) - y).abs(), None

    def minimiser(self, weights: Sequence[float] | Parameters) -> Parameters:
        """Return a minimiser of Σ p_i f_i, by linear programming."""
        from scipy.optimize import linprog  # type: ignore[import-untyped]

        designs = [self.design(index) for index in range(len(self.examples))]
        x, y = (np.concatenate(parts) for parts in zip(*designs, strict=True))
        each = [
            np.full(len(y), weight / len(y))
            for weight, (_, y) in zip(weights, designs, strict=True)
        ]
        w = np.concatenate(each)
        w /= w.max()  # the solver's tolerances are for numbers near 1
        # The dual of min Σ w |Xθ − y| is max yᵀz with Xᵀz = 0 and |z| <= w. It has as few equations
        # as θ has numbers, whose multipliers are −θ.
        found = linprog(
            -y, A_eq=x.T, b_eq=np.zeros(x.shape[1]), bounds=np.column_stack([-w, w]), method="highs"
        )
        if found.status != 0:
            return np.full(x.shape[1], np.nan)
        return np.asarray(-found.eqlin.marginals, np.float64)


class OpenQuadratic(_LeastSquares):
    """The open quadratic functions of a population."""

    streams: ClassVar = "quadratic"

    def __init__(self, task: Quadratic, population: int, seed: int) -> None:
        super().__init__(task, task.dimension, population, seed)
        self._task = task

    def drawn(self, index: int) -> Examples:
        task, dimension = self._task, self._dimension
        random = stream(self._seed, "quadratic", "client", index)
        theta = self.theta_of(index, random)
        powers = random.random(dimension)
        powers[:2] = [0, 1][:dimension]  # the largest and the smallest eigenvalue
        basis = np.linalg.qr(random.standard_normal((dimension, dimension)))[0]
        x = np.sqrt(dimension * task.condition**-powers)[:, np.newaxis] * basis.T
        return Examples(x.astype(np.float32), (x @ theta).astype(np.float32))
