"""Training of several devices at the same time, as one computation (`training.together`).

The parameters of the devices are the rows of a matrix, and a layer of all of them is one batched
matrix product. The minibatches are those of `muster.client.training.local.train`, filled up to one
size with rows that weigh nothing. So the result differs from that of `train` by rounding only. The
bits of a device's update depend on the size of a minibatch, but not on the devices beside it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from muster.client.training.descent import Descent
from muster.client.training.gradients import Activation, Layer, layers_of
from muster.client.training.local import finished, loss_at, passes
from muster.client.training.settings import Training
from muster.client.training.trainer import Trained
from muster.common.errors import ConfigError
from muster.common.seeds import stream
from muster.common.tensors import Vector
from muster.tasks import parts
from muster.tasks.task import Examples, OpenTask, fits_loss

_MOST_ROWS = 1 << 22
"""Most rows of minibatches that are listed before devices begin to train: 32 MiB."""


class Job(NamedTuple):
    """The training of a device in a round.

    Attributes:
        local: its local entries before the round; empty before its first one.
    """

    client: str
    examples: Examples
    local: bytes = b""


class Ahead(NamedTuple):
    """The training of a device that was done with that of other devices.

    Attributes:
        seconds: the device's part of the wall seconds that it took.
    """

    trained: Trained
    seconds: float


def require_layers(task: OpenTask, module: nn.Module) -> Sequence[Layer]:
    """Return the layers of a model that several devices can train at the same time.

    Raises:
        ConfigError: it is another model, or the task does not tell the loss of every example.
    """
    layers = layers_of(module)
    if layers is None:
        raise ConfigError(
            "training.together: expected a linear model or a multilayer perceptron, found "
            f"{module}; it must train all of its parameters, without hooks, parametrizations or "
            "tied weights. Leave training.together out, which trains any model"
        )
    if not fits_loss(task, "scores"):
        raise ConfigError(
            f"training.together: needs the loss of every example, but {type(task).__name__} "
            f"defines `loss` without `scores`"
        )
    return layers


def most_together(settings: Training, jobs: Sequence[Job], width: int) -> int:
    """Return how many of the jobs, from the first, are done at the same time; at least 1."""
    rows = 0
    for number, job in enumerate(jobs[: settings.together]):
        rows = max(rows, settings.steps(len(job.examples)))
        if number and rows * width * (number + 1) > _MOST_ROWS:
            return number
    return min(len(jobs), settings.together)


def train_together(
    task: OpenTask,
    module: nn.Module,
    received: Vector,
    jobs: Sequence[Job],
    settings: Training,
    *,
    width: int,
    seed: int,
    round: int,
) -> list[Trained]:
    """Train from the received parameters on the examples of each device.

    Args:
        module: as for `train`.
        received: shape (parameters,); not changed.
        jobs: at least one.
        width: the examples to which a minibatch is filled up; at least those of the largest.

    Returns:
        What `train` returns for each job, up to rounding, in the order of the jobs.
    """
    begins = [_begin(task, module, received, job, settings) for job in jobs]
    rows = [_rows(job, settings, width, seed, round) for job in jobs]
    # The devices with most steps first: those that still have steps are the first ones, always.
    order = sorted(range(len(jobs)), key=lambda number: -len(rows[number]))
    device = next(module.parameters()).device
    ordered = [jobs[n] for n in order], [rows[n] for n in order]
    minibatches = _Minibatches(*ordered, width, device)
    start, travels = received, len(received)
    if parts.local_parameters(module):
        start = np.stack([np.concatenate([received, begins[n][1]]) for n in order])
    descent = Descent(
        start, settings, round, task.ridge, device, devices=len(jobs), travels=travels
    )
    gradient_by = partial(StackedGradient, task, require_layers(task, module), _places(module))
    totals = _descend(task.ridge, gradient_by, minibatches, descent)
    updates = descent.updates()
    results: dict[int, Trained] = {}
    for place, number in enumerate(order):
        job, steps = jobs[number], len(rows[number])
        mean = totals[place] / steps if steps else math.nan
        trained = Trained(updates[place], len(job.examples), mean, steps)
        if start.ndim > 1:
            parts.load_local_parameters(module, descent.local(place))
            trained = replace(trained, local=parts.local_bytes(module))
        results[number] = finished(trained, begins[number][0], settings, seed, job.client, round)
    return [results[number] for number in range(len(jobs))]


def _begin(
    task: OpenTask, module: nn.Module, received: Vector, job: Job, settings: Training
) -> tuple[float | None, Vector]:
    """A device's loss before it trains, if it is asked for, and its local parameters."""
    parts.load_local(module, job.local)
    asked = settings.initial_loss
    loss = loss_at(received, task, module, job.examples) if asked else None
    return loss, parts.local_vector(module)


def _places(module: nn.Module) -> Mapping[int, int]:
    """Where each parameter of a module begins in the vector that is trained, by its id."""
    moving = parts.moving(module)
    ends = accumulate(parameter.numel() for parameter in moving)
    return {id(each): end - each.numel() for each, end in zip(moving, ends, strict=True)}


def _descend(
    ridge: float,
    gradient_by: Callable[[Descent], "StackedGradient"],
    minibatches: "_Minibatches",
    descent: Descent,
) -> list[float]:
    """Take all steps; return the sum of the losses of each device."""
    devices = len(descent.theta)
    totals = torch.zeros(devices, dtype=torch.float64, device=descent.theta.device)
    add_gradient = gradient_by(descent)
    for step, active in enumerate(minibatches.active):
        if active < devices:
            devices = active
            descent.keep(devices)
            add_gradient = gradient_by(descent)
        if ridge:
            norms = torch.linalg.vector_norm(descent.theta, dim=1)
            totals[:devices] += 0.5 * ridge * norms**2
        totals[:devices] += add_gradient(*minibatches.at(step))
        descent.step()
    return [float(total) for total in totals.tolist()]


def _rows(job: Job, settings: Training, width: int, seed: int, round: int) -> npt.NDArray[np.int64]:
    """The rows of a device's minibatches, shape (steps, width); −1: none."""
    held = len(job.examples)
    size = settings.minibatch(held)
    blocks = [np.empty((0, width), np.int64)]
    for order, steps in passes(held, settings, partial(stream, seed, "batches", job.client, round)):
        order = np.arange(held) if order is None else order
        block = np.full((math.ceil(held / size), width), -1)
        whole = held // size
        block[:whole, :size] = order[: whole * size].reshape(whole, size)
        if whole < len(block):
            block[whole, : held - whole * size] = order[whole * size :]
        blocks.append(block[:steps])
    return np.concatenate(blocks)


class _Minibatches:
    """The minibatches of several devices.

    Attributes:
        active: for every step, how many devices take it.

    Args:
        jobs: those with most steps first.
        rows: the result of `_rows` for each.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        rows: Sequence[npt.NDArray[np.int64]],
        width: int,
        device: torch.device,
    ) -> None:
        steps = [len(each) for each in rows]
        self.active = [sum(own > step for own in steps) for step in range(max(steps))]
        held = [len(job.examples) for job in jobs]
        last = sum(held)  # a row of zeros, for the places without an example
        index = np.full((max(steps), len(jobs), width), last)
        for number, (own, first) in enumerate(zip(rows, np.cumsum([0, *held[:-1]]), strict=True)):
            index[: len(own), number] = np.where(own < 0, last, own + first)
        there = index != last
        weights = there / np.maximum(there.sum(axis=2, keepdims=True), 1)
        self._index = torch.from_numpy(index).to(device)
        self._weights = torch.from_numpy(weights.astype(np.float32)).to(device)
        self._x = _with_zeros([job.examples.x for job in jobs]).to(device)
        self._y = _with_zeros([job.examples.y for job in jobs]).to(device)

    def at(self, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """The minibatches of a step: x of shape (devices, width, features), y of shape
        (devices · width, …), and the weights of the examples, shape (devices, width)."""
        index = self._index[step, : self.active[step]]
        flat = index.flatten()
        x = self._x.index_select(0, flat).view(*index.shape, -1)
        return x, self._y.index_select(0, flat), self._weights[step, : self.active[step]]


def _with_zeros(arrays: Sequence[npt.NDArray[Any]]) -> Tensor:
    """The rows of arrays, and a row of zeros."""
    zeros = np.zeros_like(arrays[0], shape=(1, *arrays[0].shape[1:]))
    return torch.from_numpy(np.concatenate([*arrays, zeros]))


class _StackedLayer(NamedTuple):
    """A layer of several devices.

    Attributes:
        weight: shape (devices, outputs, inputs); `of_weight` is its gradient.
        bias: shape (devices, outputs); None: the layer has none. `of_bias` is its gradient.
    """

    weight: Tensor
    of_weight: Tensor
    bias: Tensor | None
    of_bias: Tensor | None
    activation: Activation | None


class StackedGradient:
    """Adds the gradients of several devices by the chain rule, as `LayeredGradient` does for one.

    Args:
        places: see `_places`.
        descent: its `theta` and `gradient` are used until devices leave it.
    """

    def __init__(
        self,
        task: OpenTask,
        layers: Sequence[Layer],
        places: Mapping[int, int],
        descent: Descent,
    ) -> None:
        self._task = task
        self._layers: list[_StackedLayer] = []

        def of(parameter: Tensor) -> tuple[Tensor, Tensor]:
            begin = places[id(parameter)]
            end = begin + parameter.numel()
            theta, gradient = (each[:, begin:end] for each in (descent.theta, descent.gradient))
            return theta.view(-1, *parameter.shape), gradient.view(-1, *parameter.shape)

        for layer, activation in layers:
            weight, of_weight = of(layer.weight)
            bias, of_bias = (None, None) if layer.bias is None else of(layer.bias)
            self._layers.append(_StackedLayer(weight, of_weight, bias, of_bias, activation))

    def __call__(self, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """Add the gradients of one minibatch of each device.

        Args:
            x: shape (devices, width, features).
            y: shape (devices · width, …).
            weights: of the examples of a minibatch, with sum 1; shape (devices, width).

        Returns:
            The weighted loss of each device, shape (devices,).
        """
        inputs, outputs = [], x
        for layer in self._layers:
            inputs.append(outputs)
            weight = layer.weight.mT
            if layer.bias is None:
                outputs = outputs.bmm(weight)
            else:
                outputs = torch.baddbmm(layer.bias.unsqueeze(1), outputs, weight)
            if layer.activation is not None:
                outputs = layer.activation.apply_(outputs)
        flat = outputs.flatten(0, 1).requires_grad_()
        scores = self._task.scores(flat, y)
        assert scores is not None
        losses = scores[0]
        losses.backward(weights.flatten())  # type: ignore[no-untyped-call]
        assert flat.grad is not None
        slope = flat.grad.view_as(outputs)
        for place, layer in reversed([*enumerate(self._layers)]):
            if layer.activation is not None:
                slope = layer.activation.gradient(slope, inputs[place + 1])
            layer.of_weight.baddbmm_(slope.mT, inputs[place])
            if layer.of_bias is not None:
                layer.of_bias.add_(slope.sum(1))
            if place > 0:
                slope = slope.bmm(layer.weight)
        return (losses.detach().view_as(weights) * weights).sum(1)
