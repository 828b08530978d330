"""Classification tasks: pictures and signals."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import field_validator

from muster.tasks import datasets
from muster.tasks.files import directory_of, verified
from muster.tasks.inputs import taken, tensors_of
from muster.tasks.models import AnyModel, initial_module
from muster.tasks.partitions import AnyPartition, Iid, Indices, Labels, Natural, Share, once_each
from muster.tasks.task import Examples, OpenTask, Task, predict

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor, nn

    from muster.tasks.inputs import Tensors


class Classification(Task):
    """A classification task: a partition divides labelled examples; the loss is cross-entropy."""

    shape: ClassVar[tuple[int, ...] | None] = None
    """Shape of an example, if it is known before the data are read and examples are not texts."""

    partition: AnyPartition = Iid(kind="iid")
    """The partition of the examples among devices."""

    labels: Labels | None = None
    """Use only examples with these labels of the data set. The labels become 0, 1, … in this order,
    and the model chooses only between them. Absent: all labels."""

    evaluate_on: Literal["test", "training"] = "test"
    """The examples on which models are evaluated. test: the data set's test examples. training: the
    training examples of all clients, each once."""

    standardise: bool = False
    """Whether values are shifted and scaled so that those of all training examples of the data set
    have mean 0 and standard deviation 1, in each channel of pictures in colour, and in each column
    of a table. Otherwise pictures are scaled to at most 1. Not for texts."""

    @field_validator("model")
    @classmethod
    def _takes_the_examples(cls, model: AnyModel) -> AnyModel:
        if cls.shape and (reason := model.refusal(cls.shape, tokens=False)):
            raise ValueError(reason)
        return model

    @field_validator("labels")
    @classmethod
    def _differ(cls, labels: list[int] | None) -> list[int] | None:
        if labels is not None:
            once_each(labels)
            if len(labels) < 2:
                raise ValueError(f"expected two labels at least to choose between, found {labels}")
        return labels

    @abstractmethod
    def dataset(self) -> datasets.Dataset:
        """Return the data, read once per process.

        Raises:
            ConfigError: files are missing or altered.
        """

    def open(self, population: int, seed: int) -> OpenClassification:
        return OpenClassification(self, *self.divided(population, seed), seed)

    def divided(self, population: int, seed: int) -> tuple[datasets.Dataset, list[Share]]:
        """Return the data, and each client's share of them.

        Raises:
            ConfigError: the data cannot be read, or divided in this way.
        """
        dataset = self.dataset()
        if self.labels is not None:
            dataset = dataset.restricted(self.labels)
        if self.standardise:
            dataset = dataset.standardised()
        # Partitions are defined by the data set's own labels.
        labels = dataset.train_y if self.labels is None else np.array(self.labels)[dataset.train_y]
        users, units, ratio = dataset.train_user, dataset.train_unit, self.validation_ratio
        return dataset, self.partition.shares(labels, users, units, population, seed, ratio)


class Digits(Classification):
    """8×8 pictures of handwritten digits, 1,437 to train and 360 to test. It needs no files."""

    shape: ClassVar = (8, 8)

    def dataset(self) -> datasets.Dataset:
        return datasets.digits()


class FromFiles(Classification):
    """A classification task whose examples come from files in the data directory."""

    files: ClassVar[str]

    def check(self) -> None:
        verified(self.files, self.directory())

    def directory(self) -> Path:
        """Return where the files should be.

        Raises:
            ConfigError: no data directory is set.
        """
        return directory_of(self.files, self.data.directory)


class Mnist(FromFiles):
    """28×28 pictures of handwritten digits, 60,000 to train and 10,000 to test."""

    files: ClassVar = "mnist"
    shape: ClassVar = (28, 28)

    def dataset(self) -> datasets.Dataset:
        return datasets.idx(self.files, self.directory())


class FashionMnist(Mnist):
    """28×28 pictures of clothes, 60,000 to train and 10,000 to test."""

    files: ClassVar = "fashion-mnist"


class Cifar10(FromFiles):
    """3×32×32 pictures of animals and vehicles: a subset of CIFAR-10, balanced by label.

    It has 2,000 training and 500 test pictures of each of the 10 labels, so accuracies cannot be
    compared with those published for the whole data set (Krizhevsky, Learning Multiple Layers of
    Features from Tiny Images, 2009).
    """

    files: ClassVar = "cifar10"
    shape: ClassVar = (3, 32, 32)

    def dataset(self) -> datasets.Dataset:
        return datasets.cifar10(self.directory())


class UciHar(FromFiles):
    """Recognise 6 activities of 30 persons with a phone at the waist; 9 signals by 128 samples.

    Anguita et al., A Public Domain Dataset for Human Activity Recognition Using Smartphones, ESANN
    2013, in g and rad/s. The persons of the official test set are not in its training set. Here all
    30 persons train, and the test set has one segment of every activity of every person, about a
    fifth of the data, so that no test window overlaps a training window. Accuracies cannot be
    compared with published ones.
    """

    files: ClassVar = "uci-har"
    pictures: ClassVar = False
    shape: ClassVar = (9, 128)

    partition: AnyPartition = Natural(kind="natural")
    """The partition of the examples among devices. natural: each device is one of the persons."""

    def dataset(self) -> datasets.Dataset:
        return datasets.uci_har(self.directory())


class OpenClassification(OpenTask):
    """An open classification task, with the examples in memory and each client's share of them."""

    takes_rows = True

    def __init__(
        self, task: Classification, dataset: datasets.Dataset, shares: list[Share], seed: int
    ) -> None:
        self._dataset = dataset
        self._model, self._parts = task.model, task.parts
        self._seed = seed
        self._shares = shares
        self.examples = [len(share.training) for share in shares]
        if isinstance(task.partition, Natural) and dataset.train_user is not None:
            self.left_out = len(np.unique(dataset.train_user)) - len(shares)
        self._on_training = task.evaluate_on == "training"

    def client(self, index: int) -> Examples:
        return self._taken(self._shares[index].training)

    def validation(self, index: int) -> Examples:
        return self._taken(self._shares[index].validation)

    def _taken(self, rows: Indices) -> Examples:
        dataset = self._dataset
        return Examples(dataset.scaled(taken(dataset.train_x, rows)), dataset.train_y[rows])

    def test(self) -> Examples:
        if self._on_training:
            return self._taken(np.concatenate([share.training for share in self._shares]))
        return Examples(self._dataset.scaled(self._dataset.test_x), self._dataset.test_y.copy())

    def module(self) -> nn.Module:
        dataset, tokens = self._dataset, self._dataset.vocabulary is not None
        size, some = (dataset.inputs, dataset.labels), None
        if isinstance(dataset.inputs, dict):
            some = self._some
        return initial_module(
            self._model, *size, self._seed, tokens=tokens, parts=self._parts, some=some
        )

    def _some(self) -> Tensors:
        """The inputs of two examples."""
        return tensors_of(self._dataset.scaled(taken(self._dataset.train_x, slice(0, 2))))

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        from torch.nn.functional import cross_entropy

        return cross_entropy(outputs, y)

    def slope(self, outputs: Tensor, y: Tensor) -> Tensor:
        from torch.nn.functional import one_hot

        return (outputs.softmax(dim=1) - one_hot(y, outputs.shape[1])) / len(y)

    def loss_and_slope(self, outputs: Tensor, y: Tensor) -> tuple[float, Tensor]:
        import torch

        # The functions of which autograd makes `cross_entropy` and its derivative.
        logs = outputs.log_softmax(1)
        settings = None, 1, -100  # no weights of the labels, the mean, and the label to ignore
        loss, total = torch.ops.aten.nll_loss_forward(logs, y, *settings)
        slope = torch.ops.aten.nll_loss_backward(loss.new_ones(()), logs, y, *settings, total)
        return loss.item(), torch.ops.aten._log_softmax_backward_data(slope, logs, 1, outputs.dtype)

    def scores(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        from torch.nn.functional import cross_entropy

        return cross_entropy(outputs, y, reduction="none"), outputs.argmax(dim=1) == y

    def metrics_on(self, module: nn.Module, examples: Examples) -> dict[str, float]:
        import torch

        outputs = predict(module, examples.x)  # (examples, labels)
        y = torch.from_numpy(examples.y)
        return {
            "loss": self.loss(outputs, y).item() + self.penalty(module),
            "accuracy": np.mean((outputs.argmax(dim=1) == y).numpy()).item(),
        }
