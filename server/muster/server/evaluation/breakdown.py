"""How good a model is on what every device holds: many devices to a forward pass.

A device is measured on its validation examples; where the task holds none out
(`task.validation_ratio` is 0), on the examples it trains on.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from muster.common.errors import ConfigError
from muster.tasks.task import EVALUATION_BATCH, Examples, OpenTask, predict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt
    from torch import nn

_KEPT_BYTES = 256 * 2**20
"""Examples that are kept from one model to the next; what is more is made anew for each."""


class Part(NamedTuple):
    """A model on some of the examples.

    Attributes:
        examples: > 0.
        loss: mean over them.
        accuracy: share of right answers; None where the task has none.
    """

    examples: int
    loss: float
    accuracy: float | None


class _Batch(NamedTuple):
    """The examples of neighbours, one device after the other.

    Attributes:
        first: position of the first device.
        sizes: int64, shape (devices,): how many examples each has.
    """

    first: int
    sizes: npt.NDArray[np.int64]
    examples: Examples


class Breakdown:
    """The examples of a whole population.

    Args:
        ratio: the task's `validation_ratio`.
    """

    def __init__(self, task: OpenTask, population: int, ratio: float) -> None:
        self._task = task
        self._population = population
        self._ratio = ratio
        self._kept: list[_Batch] | None = None
        self._together = True

    def measure(self, module: nn.Module) -> dict[int, Part]:
        """Return a part for each device that has examples, by its position.

        Raises:
            ConfigError: no device has any.
        """
        parts: dict[int, Part] = {}
        for batch in self._batches():
            scored = self._scored(module, batch) if self._together else None
            self._together = scored is not None
            parts |= self._by_device(module, batch) if scored is None else scored
        if not parts:
            raise ConfigError(
                f"server.evaluate_groups and evaluate_devices measure what devices hold out, but "
                f"with task.validation_ratio = {self._ratio} no device holds out an example; give "
                f"a larger ratio, or 0 to measure on the training examples"
            )
        return parts

    def _scored(self, module: nn.Module, batch: _Batch) -> dict[int, Part] | None:
        import torch

        outputs = predict(module, batch.examples.x)
        scores = self._task.scores(outputs, torch.from_numpy(batch.examples.y))
        if scores is None:
            return None
        sizes, devices = batch.sizes, len(batch.sizes)
        owner = np.repeat(np.arange(devices), sizes)
        means = []
        for score in scores:
            # float64: bincount adds in the order of the examples, whatever the threads.
            sums = None if score is None else np.bincount(owner, score.numpy(), devices)
            means.append(None if sums is None else (sums / np.maximum(sizes, 1)).tolist())
        losses, right = means
        assert losses is not None
        penalty = self._task.penalty(module)
        return {
            batch.first + i: Part(size, losses[i] + penalty, None if right is None else right[i])
            for i, size in enumerate(sizes.tolist())
            if size
        }

    def _by_device(self, module: nn.Module, batch: _Batch) -> dict[int, Part]:
        parts, start = {}, 0
        for position, size in enumerate(batch.sizes.tolist(), batch.first):
            if size:
                examples = batch.examples.take(slice(start, start + size))
                found = self._task.metrics_on(module, examples)
                parts[position] = Part(size, found["loss"], found.get("accuracy"))
            start += size
        return parts

    def _batches(self) -> Iterator[_Batch]:
        if self._kept is not None:
            yield from self._kept
            return
        kept, size = [], 0
        for batch in self._read():
            yield batch
            size += batch.examples.x.nbytes + batch.examples.y.nbytes
            if size <= _KEPT_BYTES:
                kept.append(batch)
            else:
                kept.clear()
        if size <= _KEPT_BYTES:
            self._kept = kept

    def _read(self) -> Iterator[_Batch]:
        """Neighbours until they have `EVALUATION_BATCH` examples together."""
        examples_of = self._task.validation if self._ratio else self._task.client
        gathered: list[Examples] = []
        count = 0
        for position in range(self._population):
            gathered.append(examples_of(position))
            count += len(gathered[-1])
            if count >= EVALUATION_BATCH or position == self._population - 1:
                together = Examples(
                    np.concatenate([examples.x for examples in gathered]),
                    np.concatenate([examples.y for examples in gathered]),
                )
                if count:
                    sizes = np.array([len(examples) for examples in gathered])
                    yield _Batch(position + 1 - len(gathered), sizes, together)
                gathered, count = [], 0


def by_group(parts: Mapping[int, Part], groups: Sequence[str]) -> dict[str, Part]:
    """Return the parts of the groups, each device weighted by its examples.

    Args:
        groups: the group of every device, by position. A group without examples has no part.
    """
    members: dict[str, list[Part]] = {}
    for position, part in parts.items():
        members.setdefault(groups[position], []).append(part)
    return {group: _joined(found) for group, found in members.items()}


def _joined(parts: Sequence[Part]) -> Part:
    examples = sum(part.examples for part in parts)
    right = [part.examples * part.accuracy for part in parts if part.accuracy is not None]
    accuracy = math.fsum(right) / examples if len(right) == len(parts) else None
    return Part(examples, sum(part.examples * part.loss for part in parts) / examples, accuracy)
