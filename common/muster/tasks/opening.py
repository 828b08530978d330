"""Opens the task of a run in each of its processes, and checks what a task of the user's own gives.

The checks cost nothing for the tasks of muster, which have tests of their own.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, SupportsFloat

from muster.common.causes import own_place
from muster.common.errors import ConfigError, MusterError
from muster.tasks.initial import beginning_with
from muster.tasks.inputs import tensors_of
from muster.tasks.own import Own
from muster.tasks.roles import Parts, assign
from muster.tasks.task import Examples, OpenTask, Task
from muster.tasks.tasks import read_task
from muster.tasks.usable import usable

if TYPE_CHECKING:
    from torch import nn

    from muster.tasks.inputs import Tensors


def open_task(text: str, population: int, seed: int) -> OpenTask:
    """Open the task that a task's `to_json` wrote.

    Raises:
        ConfigError: it cannot be opened; the message says which part of it is wrong. The methods of
            a task of the user's own raise it too when they return what muster cannot use.
    """
    return opened(read_task(text), population, seed)


def opened(task: Task, population: int, seed: int) -> OpenTask:
    """As `open_task`, for a task that has been read."""
    found = _opened(task, population, seed)
    if task.initial is not None:
        begun = beginning_with(found.module, task.initial, task.initial_names or ())
        found.module = begun  # type: ignore[method-assign]
    return found


def _opened(task: Task, population: int, seed: int) -> OpenTask:
    if not is_own(task):
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
    replaced["module"] = _assigned(found, replaced["module"], task.parts)
    for method, checked in replaced.items():
        setattr(found, method, checked)
    return found


def is_own(task: Task) -> bool:
    """Whether a task is code of the user's own, whose devices may have no examples."""
    return isinstance(task, Own) or not type(task).__module__.startswith("muster.")


def _assigned(
    task: OpenTask, make: Callable[[], "nn.Module"], parts: Parts | None
) -> Callable[[], "nn.Module"]:
    """`make`, with modules whose entries have their roles."""

    def inputs() -> "Tensors":
        index = next((i for i, count in enumerate(task.examples) if count > 1), None)
        some = task.test() if index is None else task.client(index)
        return tensors_of(some.take(slice(0, 2)).x)

    @wraps(make)
    def assigned() -> "nn.Module":
        module = make()
        assign(module, parts, inputs)
        return module

    return assigned


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
        return usable(explained(*arguments), f"{name}({', '.join(map(str, arguments))})")

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
    """Check that a task of the user's own gives the examples of its first and its last device, and
    a test set.

    Raises:
        ConfigError: muster cannot use what it gives.
    """
    if "client" in vars(task):  # such a task
        for index in sorted({0, len(task.examples) - 1}):
            task.client(index)
        task.test()


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
