"""Tasks by name."""

import json
from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator, SerializeAsAny

from muster.common.config import Section, validate
from muster.common.errors import ConfigError
from muster.common.plugins import Registry
from muster.tasks.classification import Digits, FashionMnist, Mnist
from muster.tasks.regression import LinearRegression
from muster.tasks.task import Task

BUILT_IN: dict[str, type[Task]] = {
    "digits": Digits,
    "fashion-mnist": FashionMnist,
    "linear": LinearRegression,
    "mnist": Mnist,
}


class TaskRegistry(Registry[Task]):
    """The tasks; a scenario names one by `name`, where other plug-ins have `kind`."""

    def parse(self, value: object) -> object:
        """Turn `"name"` or `{"name": "name", **settings}` into a task; leave others alone."""
        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, Mapping):
            return value
        name = value.get("name")
        if not isinstance(name, str):
            raise ValueError(f"name is required: one of {', '.join(sorted(self.names()))}")
        return self.find(name).model_validate(dict(value))


TASKS = TaskRegistry("task", "muster.tasks", BUILT_IN)
AnyTask = Annotated[SerializeAsAny[Task], BeforeValidator(TASKS.parse)]
"""A task as a setting."""


class _Sent(Section):
    task: AnyTask


def read_task(text: str) -> Task:
    """Read what a task's `to_json` wrote; which task it is stands in the text.

    Raises:
        ConfigError: `text` is not a task; all mistakes are named.
    """
    try:
        values = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"a task sent by a peer is not JSON: {error}") from None
    return validate(_Sent, {"task": values}, "a task sent by a peer").task
