"""The trial of code and data of the user's own before a run starts.

The first device of each group takes one step of training, and its model is evaluated once, in a
child process of the nursery: whatever that code does to memory, threads, generators or a GPU, no
device inherits it. Only what it made torch import, the nursery imports too, because every device
would need it: the first optimizer of torch.optim takes 2 s and 100 MiB. A trial prints nothing, and
a scenario without code or data of its own has none.
"""

import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from muster.client.processes.config import GroupTrial, Trial
from muster.client.training import kept_state
from muster.client.training.local import train
from muster.client.training.settings import Training
from muster.client.training.trainer import keeps_state
from muster.common.causes import memory_line, own_place
from muster.common.device_metrics import metrics_to_bytes
from muster.common.errors import ConfigError
from muster.common.processes import die_with_parent
from muster.tasks.hosted import HostedTask
from muster.tasks.inputs import arrays_of, kind_of, outputs_of, tensors_of
from muster.tasks.modules import normalises_batches
from muster.tasks.opening import plain_numbers
from muster.tasks.parts import load_vector, vector_of
from muster.tasks.task import Examples, OpenTask

if TYPE_CHECKING:
    import numpy.typing as npt

    from muster.common.tensors import Vector
    from muster.tasks.inputs import Inputs

_FEW = 64
"""Examples with which model, loss and metrics are tried first."""

_REFUSED = 3
"""The exit status of a child whose message says why the trial failed."""


def require_trained(task: OpenTask, trial: Trial, seed: int) -> None:
    """Try a task in a child process.

    Raises:
        ConfigError: its data, model, loss, training or metrics are such that the run would fail.
    """
    reading, writing = os.pipe()
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    if (child := os.fork()) == 0:
        os.close(reading)
        os._exit(_tried(task, trial, seed, parent, writing))
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == _REFUSED:
        raise ConfigError(said)
    if status != 0:
        how = f"signal {-status}" if status < 0 else f"status {status}"
        raise ConfigError(
            f"task: one step of training, tried before the start, ended its process with {how}; "
            f"see logs/nursery.log. If there is too little memory, take a smaller model or a "
            f"smaller training.batch_size"
        )
    for name in said.split():
        with suppress(ImportError):  # some are objects that torch puts among the modules
            import_module(name)


def _tried(task: OpenTask, trial: Trial, seed: int, parent: int, writing: int) -> int:
    """Try the task in this child process; return its exit status.

    Args:
        writing: where to write why it was refused, or which modules torch has imported for it.
    """
    before = set(sys.modules)
    try:
        die_with_parent(parent)
        try_task(task, trial, seed)
        later = [name for name in sys.modules.keys() - before if name.startswith("torch.")]
        os.write(writing, "\n".join(sorted(later)).encode())
    except ConfigError as error:
        os.write(writing, str(error).encode()[:30_000])
        return _REFUSED
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def try_task(task: OpenTask, trial: Trial, seed: int) -> None:
    """Try a task in this process.

    Raises:
        ConfigError: see `require_trained`.
    """
    if isinstance(task, HostedTask):
        return
    module = task.module()
    received = vector_of(module)
    for group in trial.groups:
        settings = trial.training.of(group.training)
        _require_two_alone(task, module, group, settings)
        held = ((client, at) for client, at in group.devices.items() if task.examples[at])
        client, index = next(held, ("", -1))
        if index < 0:  # nobody in the group has examples
            continue
        examples = task.client(index)
        settings = settings.of_device(client, len(examples))
        _try_loss(task, module, examples, client)
        _try_one(task, module, examples, group, settings)
        _try_training(task, module, received, examples, settings, seed, client)
    if any(task.examples):
        load_vector(module, received)
        return _try_metrics(task, module, trial.training.evaluate_every > 0)
    raise ConfigError(
        "task: no device has examples to train on; expected at least one that has some"
    )


def _require_two_alone(
    task: OpenTask, module: nn.Module, group: GroupTrial, settings: Training
) -> None:
    """Check that batch normalisation never gets one example alone."""
    if settings.trainer is not None or not settings.steps(1) or not normalises_batches(module):
        return
    for client, index in group.devices.items():
        held = task.examples[index]
        size = settings.minibatch(held) if held else 2
        if held == 1:
            found = f"{client} has one example"
            mend = "give it more examples or none, or take a model without batch normalisation"
        elif size == 1:
            found, mend = "training.batch_size is 1", "take a batch_size of 3 or more"
        elif size == 2 and held % 2:
            found = f"{client} has {held} examples, and training.batch_size is 2"
            mend = "take a batch_size of 3 or more"
        else:
            continue
        raise ConfigError(
            f"task.model: batch normalisation needs two examples in every minibatch, but {found}; "
            f"{mend}"
        )


def _try_loss(task: OpenTask, module: nn.Module, examples: Examples, client: str) -> None:
    """Compute the outputs and the loss of some examples of a device."""
    some = examples.take(_rows(examples, _FEW))
    x, y = tensors_of(some.x), torch.from_numpy(some.y)
    with torch.no_grad():
        what = f"task.model: the model fails with the inputs of {client}, x of {kind_of(some.x)}"
        with _explained(what, _hint_x(some.x)), _whole_ids(module, some.x):
            outputs = outputs_of(module.eval(), x)
        what = f"task: the loss fails with the examples of {client}, outputs of {kind_of(outputs)}"
        with _explained(f"{what} and y of {_labels(outputs, some.y)}"):
            loss = task.loss(outputs, y)
        _require_scalar(loss, examples, client)


@contextmanager
def _whole_ids(module: nn.Module, x: "Inputs") -> Iterator[None]:
    """Require that no embedding of a model gets inputs that were cut to whole numbers, as a model
    does to bytes that it takes for tokens: they have been read as brightness, from 0 to 1.

    Raises:
        ConfigError: one does.
    """
    parts = {name: torch.from_numpy(part) for name, part in arrays_of(x).items()}
    fractions = {
        name: part.long()
        for name, part in parts.items()
        if part.is_floating_point() and not torch.equal(part, part.floor())
    }
    cut: list[str] = []

    def look(_: nn.Module, given: tuple[Any, ...]) -> None:
        inputs = given[:1]  # none if the model names its argument
        cut.extend(n for n, ids in fractions.items() if any(torch.equal(x, ids) for x in inputs))

    embeddings = (each for each in module.modules() if isinstance(each, nn.Embedding))
    hooks = [each.register_forward_pre_hook(look) for each in embeddings if fractions]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    if cut:
        raise ConfigError(
            f"task.model: an embedding gets {cut[0]} cut to whole numbers, but {cut[0]} has "
            f"fractions; give tokens as int64, {cut[0]}.astype(np.int64), because bytes (uint8) "
            f"are read as brightness, from 0 to 1"
        )


def _rows(examples: Examples, count: int) -> "npt.NDArray[np.int64]":
    """Rows of some examples, evenly spaced, and those of the least and the greatest label."""
    if count >= len(examples):
        return np.arange(len(examples))
    rows = np.linspace(0, len(examples) - 1, count).astype(np.int64)
    if examples.y.ndim > 1:
        return rows
    return np.union1d(rows, [examples.y.argmin(), examples.y.argmax()])


def _try_one(
    task: OpenTask, module: nn.Module, examples: Examples, group: GroupTrial, settings: Training
) -> None:
    """Compute the loss of one example, if some minibatch has only one: not every model that takes
    many examples takes one."""
    counts = filter(None, (task.examples[index] for index in group.devices.values()))
    if settings.trainer is not None or normalises_batches(module):
        return
    if any(held % settings.minibatch(held) == 1 or held == 1 for held in counts):
        one = examples.take(slice(0, 1))
        what = (
            f"task: the loss of one example, which is the last minibatch of a pass in {group.name},"
        )
        with _explained(f"{what} fails", "take another training.batch_size"), torch.no_grad():
            outputs = outputs_of(module.train(), tensors_of(one.x))
            loss = task.loss(outputs, torch.from_numpy(one.y))
            loss.item()


def _require_scalar(loss: object, examples: Examples, client: str) -> None:
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise ConfigError(
            f"task: expected a loss that is a tensor of one number, the mean over the examples, "
            f"found {kind_of(loss)}"
        )
    if torch.isfinite(loss).all():
        return
    for name, values in {**arrays_of(examples.x), "y": examples.y}.items():
        if values.dtype.kind == "f" and not (finite := np.isfinite(values)).all():
            count = values.size - np.count_nonzero(finite)
            row = int(np.argwhere(~finite)[0][0])
            raise ConfigError(
                f"task: {name} of {client} has {count} values that are not finite (NaN or "
                f"infinite), the first in row {row}, and so has the loss; leave these examples "
                f"out, or put numbers in their places"
            )


def _try_training(
    task: OpenTask,
    module: nn.Module,
    received: "Vector",
    examples: Examples,
    settings: Training,
    seed: int,
    client: str,
) -> None:
    """Take one step. A training function of the user's own may take more of them, and gets the
    examples of two minibatches first, because all may take long."""
    if settings.local_steps != 0:
        settings = settings.model_copy(update={"local_steps": 1, "local_epochs": None})
    named: dict[str, Any] = {"seed": seed, "client": client, "round": 1, "base_version": 0}
    own = settings.trainer
    who = "training" if own is None else f"training.trainer: {own.kind}"

    def step(some: Examples) -> None:
        state: dict[str, Any] = {}
        with _explained(f"{who}: a step of training of {client} fails"):
            train(task, module, received, some, settings, state=state, **named)
            if keeps_state(own):
                kept_state.to_bytes(state, own.kind)

    _one_after_other(step, examples, 2 * settings.minibatch(len(examples)), own is not None)


def _try_metrics(task: OpenTask, module: nn.Module, reported: bool) -> None:
    """Evaluate the initial model once, on some test examples if that is enough.

    Args:
        reported: whether devices report what they measure.
    """

    def evaluate(some: Examples) -> None:
        outputs: object = None
        with torch.no_grad(), suppress(Exception):  # a failing model is told of below
            outputs = outputs_of(module.eval(), tensors_of(some.take(slice(0, 1)).x))
        y = _labels(outputs, some.y)
        what = f"task: the metrics of test examples, x of {kind_of(some.x)} and y of {y}, fail"
        with _explained(what):
            found = plain_numbers(task.metrics_on(module, some))
        if reported:
            metrics_to_bytes(found)

    if type(task).metrics is not OpenTask.metrics:
        with _explained("task: metrics fails"):
            plain_numbers(task.metrics(module))
        return
    if not len(test := task.test()):
        raise ConfigError(
            "task: test: expected at least one example on which models are evaluated, found none"
        )
    _one_after_other(evaluate, test, _FEW)


def _one_after_other(
    use: Callable[[Examples], None], examples: Examples, few: int, cut: bool = True
) -> None:
    """Use a few examples, evenly spaced, and all of them if that fails or there are not more: a
    metric may need examples of every label."""
    if cut and few < len(examples):
        try:
            return use(examples.take(_rows(examples, few)))
        except ConfigError:
            pass
    return use(examples)


@contextmanager
def _explained(what: str, hint: str = "") -> Iterator[None]:
    """Turn an error of the user's own code into a sentence."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(" ".join(str(error).split())) from error
    except Exception as error:
        place = f" ({where})" if (where := own_place(error)) else ""
        why = " ".join(f"{type(error).__name__}: {error}".split())
        if memory_line(why):
            hint = "take a smaller model or a smaller training.batch_size"
        raise ConfigError(f"{what}: {why:.400}{place}{hint and f'; {hint}'}") from error


def _hint_x(x: "Inputs") -> str:
    """What to do about inputs with which a model fails."""
    if isinstance(x, Mapping):
        return f"give a model whose `forward` takes {', '.join(x)}"
    if x.dtype == np.int64:
        return "give numbers as float32, x.astype(np.float32); int64 is for tokens"
    if x.dtype != np.float32:
        return "give x.astype(np.float32)"
    hint = f"give a model that takes inputs of shape {x.shape[1:]}, or inputs of another shape"
    if (x == np.rint(x)).all():
        hint += (
            "; if these whole numbers are tokens, give the input a name, task.source.x = ['ids'] "
            "or data=({'ids': x}, y), because only a single input without a name becomes float32"
        )
    return hint


def _labels(outputs: object, y: "npt.NDArray[Any]") -> str:
    """The type of y, and what may be wrong with it as labels."""
    found = kind_of(y)
    if not isinstance(outputs, Tensor):
        return f"{found} (expected a model that returns a tensor)"
    if y.dtype == np.int64 and y.ndim == 1 and outputs.ndim == 2 and len(y):
        least, most, there = int(y.min()), int(y.max()), outputs.shape[1]
        if least < 0 or most >= there:
            said = f"{found} (labels from {least} to {most}, and the model has {there} outputs"
            if there == 1:
                return f"{said}; for numbers to predict, take task.name = 'own-regression')"
            return f"{said}, which are for labels from 0 to {there - 1})"
    if y.dtype not in (np.int64, np.float32):
        return f"{found} (expected int64 for labels, y.astype(np.int64), or float32)"
    return found
