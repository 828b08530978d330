"""Opens the task of a run in each of its processes, and checks what a task of the user's own gives.

The checks cost nothing for the tasks of muster, which have tests of their own.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, SupportsFloat

import numpy as np

from muster.common.causes import own_place
from muster.common.errors import ConfigError, MusterError
from muster.tasks.own import Own
from muster.tasks.parts import declare_counted
from muster.tasks.task import Examples, OpenTask, Task, predict
from muster.tasks.tasks import read_task

if TYPE_CHECKING:
    from torch import Tensor, nn


def open_task(text: str, population: int, seed: int) -> OpenTask:
    """Open the task that a task's `to_json` wrote.

    Raises:
        ConfigError: it cannot be opened; the message says which part of it is wrong. The methods of
            a task of the user's own raise it too when they return what muster cannot use.
    """
    return opened(read_task(text), population, seed)


def opened(task: Task, population: int, seed: int) -> OpenTask:
    """As `open_task`, for a task that has been read."""
    if not isinstance(task, Own) and type(task).__module__.startswith("muster."):
        return task.open(population, seed)
    name = f"task: {task.kind}"
    found = _explained(task.open, name)(population, seed)
    if not isinstance(found, OpenTask):
        raise ConfigError(f"{name} opened {found!r}, expected an OpenTask")
    found.examples = _counts(found.examples, population, f"{name}: `examples`")
    replaced: dict[str, Callable[..., Any]] = {"client": _counted(found, f"{name}: client")}
    for method in ("validation", "test"):
        replaced[method] = _checked(getattr(found, method), f"{name}: {method}")
    for method in ("module", "metrics_on", "metrics"):
        replaced[method] = _explained(getattr(found, method), f"{name}: {method}")
    replaced["module"] = _declared(found, replaced["module"])
    for method, checked in replaced.items():
        setattr(found, method, checked)
    return found


def _declared(task: OpenTask, make: Callable[[], "nn.Module"]) -> Callable[[], "nn.Module"]:
    """`make`, with modules that say which of their buffers are counted."""

    def inputs() -> "Tensor":
        import torch

        index = next((i for i, count in enumerate(task.examples) if count > 1), None)
        some = task.test() if index is None else task.client(index)
        return torch.from_numpy(some.take(slice(0, 2)).x)

    @wraps(make)
    def declared() -> "nn.Module":
        module = make()
        declare_counted(module, inputs)
        return module

    return declared


def _explained(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    """`call`, whose errors are those of the user's own code."""

    @wraps(call)
    def explained(*arguments: Any, **named: Any) -> Any:
        try:
            return call(*arguments, **named)
        except MusterError:
            raise
        except Exception as error:
            why = " ".join(str(error).split())
            place = f" ({where})" if (where := own_place(error)) else ""
            said = f"{name} failed with {type(error).__name__}: {why}{place}"
            raise ConfigError(said) from error

    return explained


def _checked(call: Callable[..., Any], name: str) -> Callable[..., Examples]:
    """`call`, whose examples are such as muster can use."""
    explained = _explained(call, name)

    @wraps(call)
    def checked(*arguments: Any) -> Examples:
        where = f"{name}({', '.join(map(str, arguments))})"
        found = explained(*arguments)
        if not isinstance(found, Examples):
            raise ConfigError(f"{where}: expected Examples, found {type(found).__name__}")
        for part in (found.x, found.y):
            if not isinstance(part, np.ndarray):
                raise ConfigError(f"{where}: expected NumPy arrays, found {type(part).__name__}")
        if len(found.x) != len(found.y):
            raise ConfigError(
                f"{where}: expected as many rows of x as of y, found {len(found.x)} and "
                f"{len(found.y)}"
            )
        return found

    return checked


def _counted(task: OpenTask, name: str) -> Callable[[int], Examples]:
    """The method `client` of a task, whose examples are as many as the task has announced."""
    checked = _checked(task.client, name)

    def counted(index: int) -> Examples:
        found, expected = checked(index), task.examples[index]
        if len(found) != expected:
            raise ConfigError(
                f"{name}({index}): expected {expected} examples, as `examples` says, found "
                f"{len(found)}"
            )
        return found

    return counted


def _counts(counts: Any, population: int, name: str) -> list[int]:
    """The numbers of examples, as whole numbers of Python.

    Raises:
        ConfigError: they are not such, or not one for every device.
    """
    try:
        found = [int(count) for count in counts]
        whole = all(count == each >= 0 for count, each in zip(counts, found, strict=True))
    except (TypeError, ValueError):
        found, whole = [], False
    if not whole:
        raise ConfigError(f"{name}: expected a list of whole numbers >= 0, found {counts!r:.100}")
    if len(found) != population:
        raise ConfigError(
            f"{name}: expected {population} numbers, one for every device, found {len(found)}"
        )
    return found


def require_sound(task: OpenTask) -> None:
    """Check a task of the user's own with its first and its last device, its test set and one loss.

    Raises:
        ConfigError: muster cannot use what it gives.
    """
    if "client" not in vars(task):  # not such a task
        return
    sets = [task.client(index) for index in sorted({0, len(task.examples) - 1})]
    tried = next((each for each in [*sets, task.test()] if len(each)), None)
    if tried is not None:
        few = tried.take(slice(0, 2))
        types = f"task: the loss of examples with x of {few.x.dtype} and y of {few.y.dtype}"
        _explained(_loss_of, f"{types} (expected float32 or int64)")(task, few)


def _loss_of(task: OpenTask, examples: Examples) -> float:
    import torch

    return task.loss(predict(task.module(), examples.x), torch.from_numpy(examples.y)).item()


def plain_numbers(metrics: Mapping[str, SupportsFloat]) -> dict[str, float]:
    """Metrics as numbers of Python, also if they are those of NumPy or tensors.

    Raises:
        ConfigError: they have no loss, or one is no number.
    """
    if "loss" not in metrics:
        names = ", ".join(map(str, metrics)) or "none"
        raise ConfigError(f"task: metrics: expected a loss among them, found {names}")
    found = {}
    for name, value in metrics.items():
        try:
            found[str(name)] = float(value)
        except (TypeError, ValueError, RuntimeError):
            raise ConfigError(
                f"task: metrics: expected a number as {name!r}, found {value!r:.100}"
            ) from None
    return found
