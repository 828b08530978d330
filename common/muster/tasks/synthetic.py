"""Synthetic problems whose optimum is known: what they share."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from pydantic import NonNegativeFloat, PositiveInt, field_validator

from muster.tasks.models import AnyModel, Linear, Model, Softmax, initial_module, initial_vector
from muster.tasks.task import Examples, OpenTask, Task, held_out

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

Parameters = npt.NDArray[np.float64]


class Synthetic(Task):
    """Examples that are drawn, each client's from a stream of its own: they do not depend on how
    many clients there are.
    """

    model: AnyModel = Linear(kind="linear")
    """What is trained."""

    dimension: PositiveInt = 10
    """Length of x."""

    heterogeneity: NonNegativeFloat = 0.0
    """Standard deviation, in every coordinate, of a client's θ_i around θ₀."""

    @field_validator("model")
    @classmethod
    def _predicts_values(cls, model: AnyModel) -> AnyModel:
        if isinstance(model, Softmax):
            raise ValueError("softmax chooses between classes; expected linear or mlp here")
        if reason := model.refusal((1,), tokens=False):
            raise ValueError(reason)
        return model


class OpenSynthetic(OpenTask):
    """A synthetic problem; a client's examples are drawn when they are asked for."""

    def __init__(self, task: Synthetic, each: int, population: int, seed: int) -> None:
        self.examples = [len(held_out(each, task.validation_ratio, seed, 0)[0])] * population
        self._dimension = task.dimension
        self._model: Model = task.model
        self._ratio = task.validation_ratio
        self._seed = seed

    @abstractmethod
    def drawn(self, index: int) -> Examples:
        """Return all examples of a client, x of shape (examples, dimension)."""

    @abstractmethod
    def minimiser(self, weights: Sequence[float] | Parameters) -> Parameters:
        """Return what `optimum` promises."""

    def client(self, index: int) -> Examples:
        return self._parts(index)[0]

    def validation(self, index: int) -> Examples:
        return self._parts(index)[1]

    def _parts(self, index: int) -> tuple[Examples, Examples]:
        """What a client trains on, and what it holds for validation."""
        drawn = self.drawn(range(len(self.examples))[index])
        if self._ratio == 0:
            return drawn, drawn.take(slice(0))
        rows, out = held_out(len(drawn), self._ratio, self._seed, index)
        return drawn.take(rows), drawn.take(out)

    def test(self) -> Examples:
        """Return what all clients train on."""
        clients = [self.client(index) for index in range(len(self.examples))]
        return Examples(
            np.concatenate([client.x for client in clients]),
            np.concatenate([client.y for client in clients]),
        )

    def module(self) -> nn.Module:
        return initial_module(self._model, (self._dimension,), 1, self._seed)

    def metrics(self, module: nn.Module) -> dict[str, float]:
        """Measure on the test set; of a linear model also the `distance` ‖θ − θ*‖ to the optimum.

        Where there is no optimum there is no distance.
        """
        metrics = super().metrics(module)
        if isinstance(self._model, Linear):
            difference = initial_vector(module) - self._optimum
            if np.isfinite(difference).all():
                metrics["distance"] = np.linalg.norm(difference).item()
        return metrics

    def optimum(self, weights: Sequence[float] | Parameters | None = None) -> Parameters:
        """Return the minimiser of Σ p_i f_i, f_i the loss of a linear model on client i's examples.

        Where several minimise, the one of least norm: the one that gradient descent from 0 finds.

        Args:
            weights: p, one for each client, up to a factor; by examples if absent.

        Returns:
            Shape (parameters,): the slopes, then the constant if the model has one; nan where
            nothing minimises.
        """
        return self._optimum if weights is None else self.minimiser(weights)

    @cached_property
    def _optimum(self) -> Parameters:
        return self.minimiser(self.examples)

    def design(self, index: int) -> tuple[Parameters, Parameters]:
        """Return what a client trains on as float64, x with a column of ones for a constant."""
        examples = self.client(index)
        x = examples.x.astype(np.float64)
        if isinstance(self._model, Linear) and self._model.bias:
            x = np.column_stack([x, np.ones(len(x))])
        return x, examples.y.astype(np.float64)
