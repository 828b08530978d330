"""The contract of a task: data, model, loss and evaluation.

A `Task` is the `[task]` table of a scenario. Opened for a population and a seed, it gives each
client its examples, all clients the same initial module and loss, and the evaluation a test set:

    opened = task.open(population=20, seed=7)
    module = opened.module()
    loss = opened.loss(module(x), y)      # x, y: torch tensors of opened.client(3)
    opened.metrics(module)                # {"loss": ..., "accuracy": ...}
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import ConfigDict, Field, PrivateAttr, model_validator

from muster.common.config import Section
from muster.common.errors import ConfigError
from muster.common.plugins import Plugin
from muster.common.seeds import FloatArray, stream
from muster.common.tensors import sum_of_squares
from muster.tasks.columns import decoded, encoded
from muster.tasks.inputs import arrays_of, outputs_of, taken, tensors_of
from muster.tasks.models import MODELS, AnyModel, Mlp, Model
from muster.tasks.parts import moving_vector
from muster.tasks.roles import Parts

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor, nn

    from muster.tasks.inputs import Inputs

# Test examples per forward pass: few calls, and activations stay in the cache.
EVALUATION_BATCH = 1000

SENT_Z = "covariates of the devices"
"""The key of the covariates in a task that is sent. No setting has this name, because of the
spaces."""


@dataclass(frozen=True, slots=True)
class Examples:
    """Examples of one client, or of the test set; writable arrays that the caller owns.

    Attributes:
        x: shape (examples, *inputs); float32, or int64 if they are tokens of a text. Several such
            arrays by name for a module that takes arguments of these names.
        y: shape (examples,); int64 labels, or float32 values.
    """

    x: Any
    y: npt.NDArray[np.int64] | npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: npt.NDArray[np.int64] | slice) -> Examples:
        """Return the examples in `rows`: a copy, or a view if `rows` is a slice."""
        return Examples(taken(self.x, rows), self.y[rows])


class Data(Section):
    """The data files of a task. Tasks without files ignore this table."""

    directory: str | None = None
    """Folder that holds `MNIST/raw` and the like. `--data` and the environment variable
    MUSTER_DATA take precedence over this key."""


class Task(Plugin):
    """The `[task]` table. The key `name` names the task; other plug-ins have `kind` for that.

    The settings of a model may be in `[task.model]`, or beside `model` in `[task]`.
    """

    model_config = ConfigDict(serialize_by_alias=True)

    has_accuracy: ClassVar[bool] = True
    """Whether an evaluation has an accuracy beside the loss. A function of the user's may have none
    although this is true."""

    hosted: ClassVar[bool] = False
    """Whether the open task is a `muster.tasks.hosted.HostedTask`, whose devices keep state."""

    pictures: ClassVar[bool] = True
    """Whether examples may be pictures, which augmentations can mirror and cut."""

    tried: ClassVar[bool] = False
    """Whether data of the user's own are tried before a run starts."""

    kind: str = Field(default="", alias="name")
    """The registered name of the task, `module:Class`, or `module:function`."""

    model: AnyModel = Mlp(kind="mlp")
    """The model to train."""

    parts: Parts | None = None
    """The roles of entries of the model, by name ([models.md](models.md)). Absent: each entry has
    its own."""

    data: Data = Data()
    """The data files."""

    initial: str | None = None
    """A safetensors file with initial values of the model's entries, by name; relative to the
    scenario's file. Entries that it lacks keep the values with which the model is built. Absent:
    all do."""

    initial_names: Annotated[list[str], Field(max_length=1_000)] | None = None
    """Names of the entries that are taken from the file, as patterns (`*`, `?`), for example
    `["backbone.*"]`. Absent: all that it has."""

    validation_ratio: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of each client's examples that are held out for validation. A client keeps at least one
    example to train on."""

    # Encoded columns by name. No scenario sets them, so this is not a field.
    _z: dict[str, str] = PrivateAttr(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _gather_model(cls, values: object) -> object:
        """Move the model's settings from beside `model` into its table."""
        if not isinstance(values, Mapping) or not cls.takes_model():
            return values
        default: Model = cls.model_fields["model"].default
        name = values.get("model", default.kind)
        if not isinstance(name, str):
            return values
        try:
            keys = MODELS.find(name).model_fields.keys() - cls.model_fields.keys()
        except ValueError:
            return values  # the field's own check reports this together with all other mistakes
        beside = {key: values[key] for key in values if key in keys}
        if not beside:
            return values
        rest = {key: value for key, value in values.items() if key not in beside}
        return {**rest, "model": {"kind": name, **beside}}

    @model_validator(mode="after")
    def _initial_fits(self) -> Self:
        if self.initial is not None and self.hosted:
            raise ValueError("initial: the app makes the initial model; leave initial out")
        if self.initial_names is not None and self.initial is None:
            raise ValueError("initial_names takes entries from a file; give the file as initial")
        return self

    @classmethod
    def takes_model(cls) -> bool:
        """Whether a scenario may choose the model."""
        return True

    def check(self) -> None:
        """Check early for mistakes that would stop `open`.

        Raises:
            ConfigError: data files are missing or altered.
        """

    def paths(self) -> Sequence[str]:
        """The files and folders that `open` reads, as every process of a run sees them."""
        return [] if self.data.directory is None else [self.data.directory]

    def needs(self) -> frozenset[str]:
        """Return the names of the columns of covariates Z that shape the clients' data.

        The columns of a word are its levels, `os=15`.
        """
        return frozenset()

    def with_covariates(self, z: Mapping[str, FloatArray]) -> Self:
        """Return a copy of the task that has the columns it needs, also when it is sent to a peer.

        Args:
            z: columns by name, each of shape (population,); 0 if a device does not have the
                covariate. Columns that the task does not need are ignored.

        Raises:
            ConfigError: a column that the task needs is missing.
        """
        if not self.needs():
            return self
        if missing := sorted(self.needs() - z.keys()):
            raise ConfigError(
                f"task.covariates: no device has {', '.join(missing)}; there are: "
                f"{', '.join(z) or 'none'}"
            )
        copy = self.model_copy()
        copy._z = {name: encoded(z[name]) for name in sorted(self.needs())}
        return copy

    def column(self, name: str, population: int) -> FloatArray:
        """Return one of the columns that the task has, shape (population,).

        Raises:
            ConfigError: the task does not have the column, or has it for another population.
        """
        if name not in self._z:
            raise ConfigError(
                f"task.covariates: {name} shapes the clients' data, and the task was opened "
                "without it; open what `with_covariates` returns"
            )
        column = decoded(self._z[name])
        if len(column) != population:
            raise ConfigError(
                f"task.covariates: {name} is known of {len(column)} devices, and the task was "
                f"opened for {population}"
            )
        return column

    def to_json(self) -> str:
        """Return the JSON that `read_task` reads: the settings and the columns of covariates."""
        settings = super().to_json()
        if not self._z:
            return settings
        return json.dumps({**json.loads(settings), SENT_Z: self._z}, ensure_ascii=False)

    @abstractmethod
    def open(self, population: int, seed: int) -> OpenTask:
        """Return the task for a population.

        Raises:
            ConfigError: data files are missing or altered, or the data cannot be partitioned.
        """


class OpenTask(ABC):
    """A task with its data.

    Attributes:
        examples: number of examples that each client trains on, by the client's index.
        ridge: coefficient of the term ½‖θ‖², over all parameters, of the objective. Local training
            adds its gradient, and `metrics_on` its value; `loss` and `scores` do not include it.
        left_out: number of users of the data whose examples no client has, because there are more
            users than clients.
        takes_rows: whether `client` takes rows of data that are in memory anyway, so that many
            devices of a process need not keep their examples beside them.
    """

    examples: list[int]
    ridge: float = 0.0
    left_out: int = 0
    takes_rows: bool = False

    @abstractmethod
    def client(self, index: int) -> Examples:
        """Return the training examples of the client at `index` of the population."""

    def validation(self, index: int) -> Examples:
        """Return the validation examples of the client at `index`; none unless a ratio is set."""
        return self.client(index).take(slice(0))

    @abstractmethod
    def test(self) -> Examples:
        """Return the test set, on which models are evaluated."""

    @abstractmethod
    def module(self) -> nn.Module:
        """Return a new module with the run's initial parameters."""

    @abstractmethod
    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss over a batch, a scalar."""

    def slope(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the derivative of `loss` by the outputs, in the shape of `outputs`.

        It makes the training of linear models faster. It is used only if the class that defines
        `loss` defines it too; otherwise autograd computes all gradients.
        """
        raise NotImplementedError

    def loss_and_slope(self, outputs: Tensor, y: Tensor) -> tuple[float, Tensor]:
        """Return `loss` and its derivative by the outputs, with the bits of autograd.

        A task may compute them without autograd's bookkeeping, which makes the training of
        multilayer perceptrons faster. That is used only if the class that defines `loss` defines it
        too; otherwise this method computes them.
        """
        outputs.requires_grad_()
        loss = self.loss(outputs, y)
        loss.backward()  # type: ignore[no-untyped-call]
        assert outputs.grad is not None
        return loss.item(), outputs.grad

    def scores(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor | None] | None:
        """Return the loss of every example, and whether its prediction is right: shape (examples,).

        It allows many devices to be evaluated in one forward pass, unless outputs of an example
        depend on other examples. The mean of the losses must be the result of `loss`. The second
        item is None if predictions are not right or wrong. The result is None if only `metrics_on`
        can evaluate; then each device is evaluated by itself. So it is if a derived task has a
        `loss` or `metrics_on` of its own, and no `scores`.
        """
        return None

    def metrics(self, module: nn.Module) -> dict[str, float]:
        """Evaluate `module` on the test set; the metrics include at least its loss."""
        return self.metrics_on(module, self._test)

    def metrics_on(self, module: nn.Module, examples: Examples) -> dict[str, float]:
        """Evaluate `module` on at least one example; the metrics include at least its loss.

        The loss is the objective, which includes the `penalty`.
        """
        import torch

        outputs = predict(module, examples.x)
        loss = self.loss(outputs, torch.from_numpy(examples.y)).item()
        return {"loss": loss + self.penalty(module)}

    def penalty(self, module: nn.Module) -> float:
        """Return ½ · ridge · ‖θ‖² of the parameters that training moves."""
        if not self.ridge:
            return 0.0
        return 0.5 * self.ridge * sum_of_squares(moving_vector(module).astype(np.float64))

    @cached_property
    def _test(self) -> Examples:
        return self.test()


def fits_loss(task: OpenTask, name: str) -> bool:
    """Whether the method `name` belongs to `loss`: a derived task, or a single object, may have a
    loss of its own."""
    if vars(task).keys() & {"loss", name}:
        return False
    definer = _definer(type(task), "loss")
    return definer is _definer(type(task), name) is not OpenTask


def scores_examples(task: OpenTask) -> bool:
    """Whether `scores` tells of every example what `metrics_on` tells of many. A derived task may
    have metrics of its own."""
    if not fits_loss(task, "scores") or "metrics_on" in vars(task):
        return False
    return issubclass(_definer(type(task), "scores"), _definer(type(task), "metrics_on"))


@cache
def _definer(task: type[OpenTask], name: str) -> type:
    """The class that defines a method of a task."""
    return next(base for base in task.__mro__ if name in vars(base))


def held_out(
    units: int | npt.NDArray[Any], ratio: float, seed: int, index: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Divide a client's examples into examples for training and for validation.

    Args:
        units: the number of examples, or an array of shape (examples,) with the unit of each
            example, if the examples of a unit must stay together.
        ratio: share for validation, 0 ≤ ratio < 1.
        index: the client's index, which is part of the name of the random stream.

    Returns:
        Rows for training, at least one if there are examples, and rows for validation; ascending.
    """
    which = np.arange(units) if isinstance(units, int) else units
    if ratio == 0 or len(which) == 0:
        return np.arange(len(which)), np.arange(0)
    names, unit = np.unique(which, return_inverse=True)
    order = stream(seed, "validation", index).permutation(len(names))
    sizes = np.bincount(unit)[order]
    # Take whole units; the last one is taken if at least half of it is within the share.
    taken = np.count_nonzero(np.cumsum(sizes) - sizes / 2 <= ratio * len(which))
    out = np.isin(unit, order[: min(taken, len(names) - 1)])
    return np.flatnonzero(~out), np.flatnonzero(out)


def predict(module: nn.Module, x: Inputs) -> Tensor:
    """Return the module's outputs in evaluation mode, shape (examples, outputs), on its device."""
    import torch

    training = module.training
    module.eval()
    try:
        with torch.no_grad():
            device = next((parameter.device for parameter in module.parameters()), None)
            starts = range(0, len(next(iter(arrays_of(x).values()))), EVALUATION_BATCH)
            batches = (taken(x, slice(start, start + EVALUATION_BATCH)) for start in starts)
            return torch.cat([outputs_of(module, tensors_of(some, device)) for some in batches])
    finally:
        module.train(training)
