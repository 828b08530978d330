"""Local training of one round.

`train` is a pure function of its arguments: the minibatches, their augmentations and torch's draws
(dropout) come from streams named after the seed, the client and the round. The module is only a
scratch pad, so its parameters on entry do not matter, except local ones if they are not given.
"""

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from muster.client.training.descent import Descent, clip
from muster.client.training.gradients import gradient_of
from muster.client.training.settings import Training
from muster.client.training.trainer import Trained, Trainer
from muster.common.errors import ConfigError, RemoteProtocolError
from muster.common.masks import Mask
from muster.common.seeds import integer, stream
from muster.common.tensors import Vector
from muster.tasks import parts
from muster.tasks.inputs import selected, tensors_of
from muster.tasks.models import Mlp, seed_torch
from muster.tasks.modules import normalises_batches
from muster.tasks.regression import LinearRegression
from muster.tasks.task import Examples, OpenTask, predict


def train(
    task: OpenTask,
    module: nn.Module,
    received: Vector,
    examples: Examples,
    settings: Training,
    *,
    seed: int,
    client: str,
    round: int,
    base_version: int,
    mask: Mask | None = None,
    correction: Vector | None = None,
    state: dict[str, Any] | None = None,
    local: bytes | None = None,
) -> Trained:
    """Train from the received model on a client's examples.

    Args:
        module: a module of the task, on the device that trains. It keeps the last parameters that
            it had here.
        received: the entries that travel (`muster.tasks.parts`), shape (parameters,); not changed.
        base_version: the model version of `received`.
        mask: the coordinates that are trained; the others keep their values. None: all. A user's
            own trainer does not get it.
        correction: c − c_i of the control variates, shape (parameters,), which is added to the
            gradient of every local step after it was clipped; None: there are none.
        state: what a user's own trainer keeps on the device from round to round; it changes it.
        local: the client's local entries before the round (`muster.tasks.parts.local_bytes`),
            empty before its first one; None: those that the module has.

    Raises:
        RemoteProtocolError: `received` does not fit the module.
        ConfigError: a user's own trainer returned something other than a `Trained` that fits.
    """
    named: dict[str, Any] = {
        "seed": seed,
        "client": client,
        "round": round,
        "base_version": base_version,
    }
    loss, keeps_local = None, parts.keeps_local(module)
    if keeps_local and local is not None:
        parts.load_local(module, local)
    if settings.initial_loss:
        _check_length(parts.travelling(module), received, base_version)
        loss = loss_at(received, task, module, examples)
    if settings.trainer is None:
        inner: dict[str, Any] = {"mask": mask, "correction": correction, **named}
        trained = _descend(task, module, received, examples, settings, **inner)
    else:
        # The settings come without the trainer's own name, so that it may call this function for a
        # part of its work; and without what is done here, so that it is done once.
        left = {"trainer": None, "initial_loss": False, "update_noise": 0.0}
        given = (task, module, received, examples, settings.model_copy(update=left))
        frozen = parts.frozen_checksum(module)
        own = settings.trainer.train(*given, **named, **_offered(settings.trainer, state, named))
        trained = _checked(own, received, settings.trainer.kind)
        if parts.frozen_checksum(module) != frozen:
            raise ConfigError(
                f"training.trainer: {settings.trainer.kind} changed frozen parameters of the model "
                f"(requires_grad = False), which no other device would have; expected that it "
                f"moves only parameters that are trained"
            )
    if keeps_local:
        trained = replace(trained, local=parts.local_bytes(module))
    if loss is not None or settings.update_noise:
        trained = finished(trained, loss, settings, seed, client, round)
    return trained


def _offered(
    trainer: Trainer, state: dict[str, Any] | None, named: Mapping[str, Any]
) -> dict[str, Any]:
    """What a user's own trainer wants besides. Random numbers that its code draws without a
    generator of its own follow from the seed, too."""
    name = named["client"], named["round"]
    seed_torch(named["seed"], "trainer", *name)
    draws = stream(named["seed"], "trainer", *name)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed(integer(named["seed"], "trainer", *name))
    random.seed(integer(named["seed"], "trainer", *name))
    np.random.seed(draws.integers(1 << 32))
    offered: dict[str, Any] = {"state": {} if state is None else state}
    if "generator" in trainer.wants:
        seed = integer(named["seed"], "generator", *name)
        offered["generator"] = torch.Generator().manual_seed(seed)
    return {name: value for name, value in offered.items() if name in trainer.wants}


def _descend(
    task: OpenTask,
    module: nn.Module,
    received: Vector,
    examples: Examples,
    settings: Training,
    *,
    seed: int,
    client: str,
    round: int,
    base_version: int,
    mask: Mask | None,
    correction: Vector | None,
) -> Trained:
    """Take the local steps of a round; see `train`."""
    if settings.local_steps == 0:
        return Trained(np.zeros(received.shape, np.float32), len(examples), math.nan, 0)
    parameters, buffers = parts.trained(module), parts.counted(module)
    _check_length([*parameters, *buffers], received, base_version)
    device = parameters[0].device
    moved, counted = received, None
    if buffers:
        moved, counted = np.split(received, [sum(parameter.numel() for parameter in parameters)])
        parts.load_counted(module, counted)
    travels = len(moved)
    if local := parts.local_parameters(module):
        parameters += local
        moved = np.concatenate([moved, parts.local_vector(module)])
    descent = Descent(
        moved,
        settings,
        round,
        task.ridge,
        device,
        mask=mask,
        correction=correction,
        travels=travels,
    )
    narrow = _bind(parameters, descent)
    x, y = tensors_of(examples.x, device), torch.from_numpy(examples.y).to(device)
    losses = []
    seed_torch(seed, "torch", client, round)
    if device.type == "cuda":  # CUDA has a generator of its own
        torch.cuda.manual_seed(integer(seed, "torch", client, round))
    draws = partial(stream, seed, "batches", client, round)
    add_gradient = gradient_of(task, module)
    chance = torch.Generator().manual_seed(integer(seed, "augmentations", client, round))
    for batch in minibatches(len(examples), settings, draws, module):
        penalty = descent.penalty()
        rows = None if batch is None else batch.to(device)
        some = y if rows is None else y.index_select(0, rows)
        inputs = selected(x, rows)
        for augmentation in settings.augmentations:
            inputs = augmentation.applied(inputs, chance)
        losses.append(add_gradient(inputs, some) + penalty)
        for parameter, _, gradient in narrow:
            if parameter.grad is not None:  # else the loss does not depend on it
                gradient.add_(parameter.grad)
                parameter.grad = None
        descent.step()
        for parameter, value, _ in narrow:
            parameter.data.copy_(value)
    for parameter in parameters:
        parameter.grad = None  # otherwise every idle device would keep a second model in memory
    mean = math.fsum(losses) / len(losses) if losses else math.nan
    delta = descent.updates()
    if counted is not None:
        delta = np.concatenate([delta, parts.counted_vector(module) - counted])
    return Trained(delta, len(examples), mean, len(losses))


def _bind(
    parameters: Sequence[nn.Parameter], descent: Descent
) -> list[tuple[nn.Parameter, Tensor, Tensor]]:
    """Make the trained parameters of a module and their gradients views of a descent's. Parameters
    of half precision get its values, and are returned with their views: the descent keeps all
    values in float32, so that small steps are not lost."""
    narrow = []
    sizes = [parameter.numel() for parameter in parameters]
    values = torch.split_with_sizes(descent.theta, sizes)
    gradients = torch.split_with_sizes(descent.gradient, sizes)
    for parameter, value, gradient in zip(parameters, values, gradients, strict=True):
        value, gradient = value.view_as(parameter), gradient.view_as(parameter)
        if parameter.dtype != torch.float32:
            parameter.data.copy_(value)
            parameter.grad = None
            narrow.append((parameter, value, gradient))
            continue
        parameter.data = value
        # Gradients are added into existing ones, so they stay views.
        parameter.grad = gradient
    return narrow


def _check_length(tensors: Sequence[Tensor], received: Vector, base_version: int) -> None:
    needed = sum(tensor.numel() for tensor in tensors)
    if received.shape != (needed,):
        raise RemoteProtocolError(
            f"version {base_version} of the model has shape {received.shape}, the task's model "
            f"needs ({needed},)"
        )


def loss_at(received: Vector, task: OpenTask, module: nn.Module, examples: Examples) -> float:
    """Return the loss of a model over a client's examples, with the task's ridge.

    Args:
        received: shape (parameters,); not changed. The module gets these parameters.
    """
    moved = parts.load_vector(module, received.astype(np.float32))
    device = next(module.parameters()).device
    y = torch.from_numpy(examples.y).to(device)
    loss = task.loss(predict(module, examples.x), y).item()
    if not task.ridge:
        return loss
    theta = np.concatenate([received[:moved], parts.local_vector(module)])
    flat = torch.from_numpy(theta.astype(np.float32)).to(device)
    norm: float = torch.linalg.vector_norm(flat, dtype=torch.float64).item()
    return loss + 0.5 * task.ridge * norm**2


def finished(
    trained: Trained,
    initial_loss: float | None,
    settings: Training,
    seed: int,
    client: str,
    round: int,
) -> Trained:
    """Return the result of training with its initial loss and the noise of the settings."""
    if initial_loss is not None:
        trained = replace(trained, facts=trained.facts._replace(initial_loss=initial_loss))
    if settings.update_noise:
        draws = stream(seed, "privacy", client, round)
        trained = replace(trained, delta=clipped_with_noise(trained.delta, settings, draws))
    return trained


def clipped_with_noise(delta: Vector, settings: Training, draws: np.random.Generator) -> Vector:
    """Return an update clipped to `clip_update`, with the noise of `update_noise`."""
    clipped = torch.from_numpy(delta.copy())
    clip(clipped, settings.clip_update)  # also the update of a user's own trainer
    noise = draws.normal(0.0, settings.update_noise, len(delta))
    return (clipped.numpy() + noise).astype(np.float32)


def _checked(trained: object, received: Vector, kind: str) -> Trained:
    if not isinstance(trained, Trained):
        raise ConfigError(f"training.trainer: {kind} returned {trained!r}, expected a Trained")
    delta: object = trained.delta
    if not isinstance(delta, np.ndarray):
        found = repr(delta)
    elif (delta.dtype, delta.shape) == (np.float32, received.shape):
        return trained
    else:
        found = f"{delta.dtype} of shape {delta.shape}"
    raise ConfigError(
        f"training.trainer: {kind} returned a delta that is {found}, expected an array of "
        f"float32 of shape {received.shape}"
    )


def minibatches(
    examples: int,
    settings: Training,
    draws: Callable[[], np.random.Generator],
    module: nn.Module | None = None,
) -> Iterator[Tensor | None]:
    """Yield the rows of the minibatch of each local step; None means all rows.

    If the last minibatch of a pass has one example and the module has batch normalisation, it takes
    one more from the minibatch before it, so that it has two.

    The other arguments are those of `passes`.
    """
    size = settings.minibatch(examples)
    alone = size > 2 and examples % size == 1 and module is not None and normalises_batches(module)
    for order, steps in passes(examples, settings, draws):
        if order is None:
            yield None
            continue
        rows = torch.from_numpy(order)
        for start in range(0, steps * size, size):
            end = start + size
            if alone:  # only the last minibatch begins, and only the one before ends, at this row
                start, end = start - (start == examples - 1), end - (end == examples - 1)
            yield rows[start:end]


def passes(
    examples: int, settings: Training, draws: Callable[[], np.random.Generator]
) -> Iterator[tuple[npt.NDArray[np.int64] | None, int]]:
    """Yield the order of the examples in each pass over them, and the steps of the pass.

    The examples are shuffled for every pass, and the last minibatch of a pass may be smaller.
    `local_epochs` counts passes; `local_steps` may stop inside a pass or begin another. If a
    minibatch is all of the examples, the order is None: the sum is always the same, and a shuffle
    would only change its rounding.

    Args:
        draws: makes the stream of the shuffles; called if there is anything to shuffle.
    """
    if examples == 0:
        return
    size = settings.minibatch(examples)
    per_pass, left = math.ceil(examples / size), settings.steps(examples)
    random = draws() if left and size < examples else None
    while left > 0:
        order = None if random is None else random.permutation(examples)
        yield order, min(left, per_pass)
        left -= per_pass


def fingerprint(device: str = "cpu") -> dict[str, str | int]:
    """Return the fingerprint of the software and hardware that decide the bits of training.

    Runs with different fingerprints cannot be compared bit by bit.

    Args:
        device: torch's name of the device that trains.
    """
    kind = torch.device(device).type
    return {
        "torch": str(torch.__version__),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "device": torch.cuda.get_device_name(device) if kind == "cuda" else kind,
        "threads": torch.get_num_threads(),
    }


def training_thread() -> ThreadPoolExecutor:
    """A thread for training, in which torch uses one core.

    `torch.set_num_threads` holds only for existing threads; OpenMP gives a new thread all cores.
    Sums over several cores would give other bits, and forks of a nursery would wait for each other.
    """
    return ThreadPoolExecutor(1, "train", torch.set_num_threads, (1,))


def warm() -> None:
    """Take one training step, so that everything is imported before processes are forked."""
    task = LinearRegression(model=Mlp(hidden=[2])).open(population=1, seed=0)
    module, examples = task.module(), task.client(0)
    received = np.zeros(sum(p.numel() for p in module.parameters()), np.float32)
    settings = Training(local_steps=1)
    train(
        task, module, received, examples, settings, seed=0, client="warm", round=1, base_version=0
    )
