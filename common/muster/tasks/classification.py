"""Tasks that recognise pictures: handwritten digits, MNIST, Fashion-MNIST."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from muster.tasks import datasets
from muster.tasks.models import Model, initial_module
from muster.tasks.partitions import AnyPartition, Iid, Indices
from muster.tasks.task import Examples, OpenTask, Task, predict

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
        return OpenClassification(dataset, shares, self.model, seed)


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
        self, dataset: datasets.Dataset, shares: list[Indices], model: Model, seed: int
    ) -> None:
        self.examples = [len(share) for share in shares]
        self._dataset = dataset
        self._shares = shares
        self._model = model
        self._seed = seed

    def client(self, index: int) -> Examples:
        share = self._shares[index]
        return Examples(
            self._dataset.scaled(self._dataset.train_x[share]), self._dataset.train_y[share]
        )

    def test(self) -> Examples:
        return Examples(self._dataset.scaled(self._dataset.test_x), self._dataset.test_y.copy())

    def module(self) -> nn.Module:
        inputs = self._dataset.train_x.shape[1:]
        return initial_module(self._model, inputs, self._dataset.labels, self._seed)

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        from torch.nn.functional import cross_entropy

        return cross_entropy(outputs, y)

    def metrics(self, module: nn.Module) -> dict[str, float]:
        import torch

        outputs = predict(module, self._test.x)  # (examples, labels)
        y = torch.from_numpy(self._test.y)
        return {
            "loss": self.loss(outputs, y).item(),
            "accuracy": np.mean((outputs.argmax(dim=1) == y).numpy()).item(),
        }
