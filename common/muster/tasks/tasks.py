"""Tasks by name."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from muster.common.config import Section, inner_section, validate
from muster.common.errors import ConfigError
from muster.tasks.classification import Cifar10, Digits, FashionMnist, Mnist, UciHar
from muster.tasks.columns import decoded
from muster.tasks.flower.opened import Flower
from muster.tasks.logistic import LogisticRegression
from muster.tasks.own import FunctionRegistry, Own
from muster.tasks.own_data import OwnData
from muster.tasks.own_regression import OwnRegression
from muster.tasks.reading import News, Shakespeare
from muster.tasks.regression import LinearRegression, Quadratic
from muster.tasks.task import SENT_Z, OpenTask, Task

BUILT_IN: dict[str, type[Task]] = {
    "20news": News,
    "cifar10": Cifar10,
    "digits": Digits,
    "fashion-mnist": FashionMnist,
    "flower": Flower,
    "linear": LinearRegression,
    "logistic": LogisticRegression,
    "mnist": Mnist,
    "own": OwnData,
    "own-regression": OwnRegression,
    "quadratic": Quadratic,
    "shakespeare": Shakespeare,
    "uci-har": UciHar,
}


class OwnTask(Task, Own):
    """A task that a function `(population, seed, **settings)` opens.

    The function also gets `model`, `data` and `validation_ratio` if it has parameters with these
    names.
    """

    given: ClassVar = ("population", "seed")

    @classmethod
    def takes_model(cls) -> bool:
        return "model" in cls.takes

    @model_validator(mode="after")
    def _takes_what_is_set(self) -> Self:
        for name in ("model", "validation_ratio"):
            default = Task.model_fields[name].default
            if name not in self.takes and getattr(self, name) != default:
                raise ValueError(f"{name}: {self.kind} has no parameter of this name")
        return self

    def open(self, population: int, seed: int) -> OpenTask:
        opened: Any = self.function(population, seed, **self.settings())
        if not isinstance(opened, OpenTask):
            raise ConfigError(f"task: {self.kind} returned {opened!r}, expected an OpenTask")
        return opened


class TaskRegistry(FunctionRegistry[Task]):
    """The registry of tasks. A scenario names a task by `name`; other plug-ins have `kind`."""

    def parse(self, value: object) -> object:
        """Turn `"name"` or `{"name": "name", **settings}` into a task; return other values as they
        are."""
        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, Mapping):
            return value
        name = value.get("name")
        if not isinstance(name, str):
            raise ValueError(f"name is required: one of {', '.join(sorted(self.names()))}")
        return inner_section(self.find(name), value)


TASKS = TaskRegistry("task", "muster.tasks", BUILT_IN, OwnTask)
AnyTask = Annotated[SerializeAsAny[Task], BeforeValidator(TASKS.parse)]
"""A task as a setting."""


class _Sent(Section):
    task: AnyTask
    z: dict[str, str] = Field(default_factory=dict)


def read_task(text: str) -> Task:
    """Read the JSON that a task's `to_json` wrote; it includes the name of the task.

    Raises:
        ConfigError: `text` is not a task; the message names all mistakes.
    """
    try:
        values = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"a task sent by a peer is not JSON: {error}") from None
    z = values.pop(SENT_Z, {}) if isinstance(values, dict) else {}
    sent = validate(_Sent, {"task": values, "z": z}, "a task sent by a peer")
    if not sent.z:
        return sent.task
    try:
        return sent.task.with_covariates({name: decoded(text) for name, text in sent.z.items()})
    except ValueError as error:
        raise ConfigError(
            f"a task sent by a peer has covariates that cannot be read: {error}"
        ) from None
