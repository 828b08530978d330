"""The common part of synthetic problems whose optimum is known."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field, field_validator, model_validator

from muster.common.bounds import Count, NotNegative, Number, in_range
from muster.common.errors import ConfigError
from muster.common.seeds import stream
from muster.tasks.models import AnyModel, Linear, Model, Softmax, initial_module
from muster.tasks.parts import parameters_vector
from muster.tasks.task import Examples, OpenTask, Task, held_out

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

Parameters = npt.NDArray[np.float64]


def _parse_effects(value: object) -> object:
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        if twice := sorted({name for name in value if value.count(name) > 1}):
            raise ValueError(f"{', '.join(twice)} is named twice; expected each covariate once")
        return value
    if isinstance(value, Mapping):
        for name, effect in value.items():
            if not (isinstance(effect, list) and all(_is_number(entry) for entry in effect)):
                raise ValueError(f"{name}: expected a list of numbers, found {effect!r}")
        return value
    # One message here, because the union would report one mistake per alternative.
    raise ValueError(
        "expected a list of names of covariates Z, or a table that gives each a list of numbers, "
        f"found {value!r}"
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and in_range(value)


Effects = Annotated[list[str] | dict[str, list[Number]], BeforeValidator(_parse_effects)]


class Synthetic(Task):
    """A task with random examples.

    Each client's examples come from a stream of its own, so they do not depend on the number of
    clients.
    """

    has_accuracy: ClassVar[bool] = False
    pictures: ClassVar[bool] = False

    model: AnyModel = Linear(kind="linear")
    """The model to train."""

    dimension: Count = 10
    """Length of x."""

    heterogeneity: NotNegative = 0.0
    """Standard deviation, in every coordinate, of a client's θ_i around θ₀."""

    covariates: Effects = Field(default_factory=list[str])
    """Columns j of covariates Z that shape a client's data: Σ_j Z_ij γ_j is added to its θ_i. The
    columns of a word are its levels, `os=15`. If a device lacks a covariate, Z_ij = 0. With a list
    of names each γ_j is a unit vector, drawn by the seed and the name; a table such as
    `{ age = [1, 0] }` gives each γ_j. With covariates, θ₀, γ_j and θ_i have the slopes and then, if
    the model has a `bias`, the constant. Without covariates the data have no constant."""

    ridge: NotNegative = 0.0
    """Coefficient of the term ½‖θ‖², over all parameters, of the objective: in local training, in
    the reported loss, and in the optimum."""

    @field_validator("model")
    @classmethod
    def _predicts_values(cls, model: AnyModel) -> AnyModel:
        if isinstance(model, Softmax):
            raise ValueError("softmax chooses between classes; expected linear or mlp here")
        if reason := model.refusal((1,), tokens=False):
            raise ValueError(reason)
        return model

    @model_validator(mode="after")
    def _effects_fit(self) -> Self:
        if isinstance(self.covariates, dict):
            constant = ", then the constant" if self.parameters > self.dimension else ""
            for name, effect in self.covariates.items():
                if len(effect) != self.parameters:
                    raise ValueError(
                        f"covariates.{name}: expected {self.parameters} numbers, of the slopes"
                        f"{constant}; found {len(effect)}"
                    )
        return self

    @property
    def parameters(self) -> int:
        """Length of θ_i: the slopes and, with covariates, a linear model's constant."""
        constant = isinstance(self.model, Linear) and self.model.bias
        return self.dimension + (constant and bool(self.covariates))

    def needs(self) -> frozenset[str]:
        return frozenset(self.covariates)


_NUMBERS = 10**9
"""Most numbers in all clients' examples: 4 GB, which the evaluation holds at once."""

_UNKNOWNS = 5000
"""Most unknowns in the equations of an optimum: a matrix of 200 MB, solved in a minute."""


def _require_size(task: Synthetic, population: int, each: int, unknowns: int) -> None:
    numbers = population * each * task.dimension
    if numbers > _NUMBERS:
        raise ConfigError(
            f"task: the examples of {population:,} devices are {numbers:,} numbers, expected at "
            f"most {_NUMBERS:,}; take a smaller dimension, fewer examples or fewer devices"
        )
    if isinstance(task.model, Linear) and unknowns > _UNKNOWNS:
        raise ConfigError(
            f"task.dimension: the optimum, which models are compared with, has {unknowns:,} "
            f"unknowns, expected at most {_UNKNOWNS:,}; take a smaller dimension, or another model"
        )


class OpenSynthetic(OpenTask):
    """An open synthetic problem. A client's examples are drawn whenever they are asked for.

    Attributes:
        streams: the first part of the names of its random streams.
        theta: θ₀, shape (`Synthetic.parameters`,).
    """

    streams: ClassVar[str]

    def __init__(self, task: Synthetic, each: int, population: int, seed: int) -> None:
        _require_size(task, population, each, self.unknowns(task, population * each))
        self.examples = [len(held_out(each, task.validation_ratio, seed, 0)[0])] * population
        self.ridge = task.ridge
        self._settings = task
        self._dimension = task.dimension
        self._model: Model = task.model
        self._ratio = task.validation_ratio
        self._seed = seed
        self.theta = stream(seed, self.streams, "theta").standard_normal(task.parameters)

    @staticmethod
    def unknowns(task: Synthetic, examples: int) -> int:
        """Return the number of unknowns of the optimum's equations, for the total of `examples`."""
        return task.parameters

    @abstractmethod
    def drawn(self, index: int) -> Examples:
        """Return all examples of a client, x of shape (examples, dimension)."""

    @abstractmethod
    def minimiser(self, weights: Sequence[float] | Parameters) -> Parameters:
        """Return the minimiser that `optimum` describes, for given weights."""

    @cached_property
    def effects(self) -> Parameters:
        """The effects γ_j, shape (covariates, parameters), in the order of the setting."""
        task = self._settings
        if isinstance(task.covariates, dict):
            return np.array(list(task.covariates.values()), np.float64)
        drawn = [
            stream(self._seed, self.streams, "effect", name).standard_normal(task.parameters)
            for name in task.covariates
        ]
        return np.array([effect / np.linalg.norm(effect) for effect in drawn])

    @cached_property
    def _z(self) -> Parameters:
        """The covariates Z that the task needs, shape (population, covariates)."""
        names, population = list(self._settings.covariates), len(self.examples)
        return np.column_stack([self._settings.column(name, population) for name in names])

    def theta_of(self, index: int, random: np.random.Generator) -> Parameters:
        """Return θ_i, shape (parameters,); its heterogeneity is drawn from `random`."""
        heterogeneity = self._settings.heterogeneity
        theta = self.theta + heterogeneity * random.standard_normal(len(self.theta))
        if not self._settings.covariates:
            return theta
        # Each row by itself, because a product of matrices may round differently for another
        # population.
        shift: Parameters = self._z[index] @ self.effects
        return theta + shift

    def responses(self, x: npt.NDArray[Any], theta: Parameters) -> Parameters:
        """Return xᵀθ of every row, plus the constant if θ has one; shape (examples,)."""
        slopes: Parameters = x @ theta[: self._dimension]
        return slopes + theta[-1] if len(theta) > self._dimension else slopes

    def client(self, index: int) -> Examples:
        return self._parts(index)[0]

    def validation(self, index: int) -> Examples:
        return self._parts(index)[1]

    def _parts(self, index: int) -> tuple[Examples, Examples]:
        """A client's examples for training and for validation."""
        drawn = self.drawn(range(len(self.examples))[index])
        if self._ratio == 0:
            return drawn, drawn.take(slice(0))
        rows, out = held_out(len(drawn), self._ratio, self._seed, index)
        return drawn.take(rows), drawn.take(out)

    def test(self) -> Examples:
        """Return the training examples of all clients."""
        clients = [self.client(index) for index in range(len(self.examples))]
        return Examples(
            np.concatenate([client.x for client in clients]),
            np.concatenate([client.y for client in clients]),
        )

    def module(self) -> nn.Module:
        parts = self._settings.parts
        return initial_module(self._model, (self._dimension,), 1, self._seed, parts=parts)

    def metrics(self, module: nn.Module) -> dict[str, float]:
        """Evaluate `module` on the test set.

        For a linear model the metrics include the `distance` ‖θ − θ*‖ to the optimum, if there is
        an optimum.
        """
        metrics = super().metrics(module)
        if isinstance(self._model, Linear):
            difference = parameters_vector(module) - self._optimum
            if np.isfinite(difference).all():
                metrics["distance"] = np.linalg.norm(difference).item()
        return metrics

    def optimum(self, weights: Sequence[float] | Parameters | None = None) -> Parameters:
        """Return the minimiser of Σ p_i f_i + ½ ridge ‖θ‖², with Σ p_i = 1.

        f_i is the loss of a linear model on the training examples of client i. If there are several
        minimisers, the one of least norm is returned, which gradient descent from 0 finds.

        Args:
            weights: p, one for each client, up to a common factor; None: the numbers of examples.

        Returns:
            Shape (parameters,): the slopes, then the constant if the model has one; nan if there is
            no minimiser.
        """
        return self._optimum if weights is None else self.minimiser(weights)

    @cached_property
    def _optimum(self) -> Parameters:
        return self.minimiser(self.examples)

    def design(self, index: int) -> tuple[Parameters, Parameters]:
        """Return a client's training examples as float64, with a column of ones for a constant."""
        examples = self.client(index)
        x = examples.x.astype(np.float64)
        if isinstance(self._model, Linear) and self._model.bias:
            x = np.column_stack([x, np.ones(len(x))])
        return x, examples.y.astype(np.float64)
