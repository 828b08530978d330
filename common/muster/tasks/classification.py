"""Tasks that recognise pictures: handwritten digits, MNIST, Fashion-MNIST."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from muster.tasks import datasets
from muster.tasks.models import initial_module
from muster.tasks.partitions import AnyPartition, Iid, Indices
from muster.tasks.task import Examples, OpenTask, Task, held_out, predict

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor, nn


class Classification(Task):
    """Labelled examples, shared out by a partition; loss is the cross-entropy."""

    partition: AnyPartition = Iid(kind="iid")
    """Which device holds which examples."""

    @abstractmethod
    def dataset(self) -> datasets.Dataset:
        """Return the data, read once per process.

        Raises:
            ConfigError: files are missing or altered.
        """

    def open(self, population: int, seed: int) -> OpenClassification:
        dataset = self.dataset()
        shares = self.partition.split(dataset.train_y, population, seed)
        return OpenClassification(self, dataset, shares, seed)


class Digits(Classification):
    """8×8 pictures of handwritten digits, 1,437 to train and 360 to test; needs no files."""

    def dataset(self) -> datasets.Dataset:
        return datasets.digits()


class PictureFiles(Classification):
    """Pictures from files in the data directory."""

    files: ClassVar[str]

    def check(self) -> None:
        datasets.verified(self.files, self._directory())

    def dataset(self) -> datasets.Dataset:
        return datasets.idx(self.files, self._directory())

    def _directory(self) -> Path:
        return datasets.directory_of(self.files, self.data.directory)


class Mnist(PictureFiles):
    """28×28 pictures of handwritten digits, 60,000 to train and 10,000 to test."""

    files = "mnist"


class FashionMnist(PictureFiles):
    """28×28 pictures of clothes, 60,000 to train and 10,000 to test."""

    files = "fashion-mnist"


class OpenClassification(OpenTask):
    """Pictures in memory, and who holds which."""

    def __init__(
        self, task: Classification, dataset: datasets.Dataset, shares: list[Indices], seed: int
    ) -> None:
        self._dataset = dataset
        self._model = task.model
        self._seed = seed
        # Who trains on which, and holds which for validation.
        self._shares, self._validation = [], []
        for index, share in enumerate(shares):
            rows, out = held_out(len(share), task.validation_ratio, seed, index)
            self._shares.append(share[rows])
            self._validation.append(share[out])
        self.examples = [len(share) for share in self._shares]

    def client(self, index: int) -> Examples:
        return self._taken(self._shares[index])

    def validation(self, index: int) -> Examples:
        return self._taken(self._validation[index])

    def _taken(self, rows: Indices) -> Examples:
        dataset = self._dataset
        return Examples(dataset.scaled(dataset.train_x[rows]), dataset.train_y[rows])

    def test(self) -> Examples:
        return Examples(self._dataset.scaled(self._dataset.test_x), self._dataset.test_y.copy())

    def module(self) -> nn.Module:
        inputs = self._dataset.train_x.shape[1:]
        return initial_module(self._model, inputs, self._dataset.labels, self._seed)

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        from torch.nn.functional import cross_entropy

        return cross_entropy(outputs, y)

    def scores(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        from torch.nn.functional import cross_entropy

        return cross_entropy(outputs, y, reduction="none"), outputs.argmax(dim=1) == y

    def metrics_on(self, module: nn.Module, examples: Examples) -> dict[str, float]:
        import torch

        outputs = predict(module, examples.x)  # (examples, labels)
        y = torch.from_numpy(examples.y)
        return {
            "loss": self.loss(outputs, y).item(),
            "accuracy": np.mean((outputs.argmax(dim=1) == y).numpy()).item(),
        }
