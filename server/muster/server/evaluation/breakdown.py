"""Measures a model on the examples of every device, with many devices in one forward pass if the
outputs of an example depend on that example alone.

A device is measured on its validation examples. If the task holds out none
(`task.validation_ratio` is 0), it is measured on its training examples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from muster.common.errors import ConfigError
from muster.server.evaluation.messages import Part
from muster.tasks.inputs import arrays_of, joined, taken
from muster.tasks.opening import plain_numbers
from muster.tasks.task import EVALUATION_BATCH, Examples, OpenTask, predict, scores_examples

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    from torch import nn

KEPT_BYTES = 256 * 2**20
"""By default, the most bytes of examples that are kept from one model to the next."""


class _Batch(NamedTuple):
    """The examples of devices at consecutive positions, one device after the other.

    Attributes:
        first: position of the first device.
        sizes: int64, shape (devices,): how many examples each has.
    """

    first: int
    sizes: npt.NDArray[np.int64]
    examples: Examples


class Breakdown:
    """Measures models on every device of a population.

    Args:
        population: number of devices.
        ratio: the task's `validation_ratio`.
        kept_bytes: the most bytes of examples that are kept from one model to the next. If the
            population has more, its examples are read again for each model.
    """

    def __init__(
        self, task: OpenTask, population: int, ratio: float, kept_bytes: int = KEPT_BYTES
    ) -> None:
        self._task = task
        self._population = population
        self._ratio = ratio
        self._kept_bytes = kept_bytes
        self._kept: list[_Batch] | None = None
        # None: the module must be tried.
        self._together: bool | None = None if scores_examples(task) else False

    def measure(self, module: nn.Module) -> dict[int, Part]:
        """Return a part for each device that has examples, by its position.

        Raises:
            ConfigError: no device has any examples.
        """
        parts: dict[int, Part] = {}
        together = self._may_go_together(module)
        for batch in self._batches():
            if together is None and len(batch.sizes) > 1:
                together = self._agrees(module, batch)
            scored = None if together is False else self._scored(module, batch)
            parts |= self._by_device(module, batch) if scored is None else scored
        if together is False:
            self._together = False
        if not parts:
            raise ConfigError(
                f"server.evaluate_groups and evaluate_devices measure what devices hold out, but "
                f"with task.validation_ratio = {self._ratio} no device holds out an example; give "
                f"a larger ratio, or 0 to measure on the training examples"
            )
        return parts

    def _may_go_together(self, module: nn.Module) -> bool | None:
        """Whether devices may share a forward pass; None if that must be tried."""
        from muster.tasks.modules import takes_examples_one_by_one

        return takes_examples_one_by_one(module) if self._together is None else self._together

    def _agrees(self, module: nn.Module, batch: _Batch) -> bool:
        """Whether the first and the last device of a batch get alone what they get together. Each
        of them has other devices only on one side."""
        from muster.tasks.modules import agree

        x, ends = batch.examples.x, np.cumsum(batch.sizes)
        outputs = predict(module, x)
        here = np.flatnonzero(batch.sizes)
        return all(
            agree(predict(module, taken(x, slice(begin, end))), outputs[begin:end])
            for begin, end in ((ends[i] - batch.sizes[i], ends[i]) for i in here[[0, -1]])
        )

    def _scored(self, module: nn.Module, batch: _Batch) -> dict[int, Part] | None:
        """Measure the devices of a batch together; None if the task does not score each example."""
        import torch

        outputs = predict(module, batch.examples.x)
        scores = self._task.scores(outputs, torch.from_numpy(batch.examples.y))
        if scores is None:
            return None
        sizes, devices = batch.sizes, len(batch.sizes)
        owner = np.repeat(np.arange(devices), sizes)
        means = []
        for score in scores:
            # float64. bincount adds in the order of the examples, whatever the number of threads.
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
        """Measure the devices of a batch one by one."""
        parts, start = {}, 0
        for position, size in enumerate(batch.sizes.tolist(), batch.first):
            if size:
                examples = batch.examples.take(slice(start, start + size))
                metrics = plain_numbers(self._task.metrics_on(module, examples))
                main = metrics.pop("loss"), metrics.pop("accuracy", None)
                parts[position] = Part(size, *main, metrics)
            start += size
        return parts

    def _batches(self) -> Iterator[_Batch]:
        """Yield the batches of the population; keep them if they are within `kept_bytes`."""
        if self._kept is not None:
            yield from self._kept
            return
        kept, size = [], 0
        for batch in self._read():
            yield batch
            arrays = *arrays_of(batch.examples.x).values(), batch.examples.y
            size += sum(array.nbytes for array in arrays)
            if size <= self._kept_bytes:
                kept.append(batch)
            else:
                kept.clear()
        if size <= self._kept_bytes:
            self._kept = kept

    def _read(self) -> Iterator[_Batch]:
        """Yield batches of consecutive devices.

        A batch ends as soon as it has `EVALUATION_BATCH` examples.
        """
        examples_of = self._task.validation if self._ratio else self._task.client
        pending: list[Examples] = []
        count = 0
        for position in range(self._population):
            pending.append(examples_of(position))
            count += len(pending[-1])
            if count >= EVALUATION_BATCH or position == self._population - 1:
                together = Examples(
                    joined([examples.x for examples in pending]),
                    np.concatenate([examples.y for examples in pending]),
                )
                if count:
                    sizes = np.array([len(examples) for examples in pending])
                    yield _Batch(position + 1 - len(pending), sizes, together)
                pending, count = [], 0
