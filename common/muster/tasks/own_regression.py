"""Regression on examples that the user brings in files."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import model_validator

from muster.tasks.classification import OpenClassification
from muster.tasks.own_data import OwnData, read_own
from muster.tasks.partitions import Iid, Natural, QuantitySkew
from muster.tasks.task import Examples, predict

if TYPE_CHECKING:
    from torch import Tensor, nn

    from muster.tasks.datasets import Dataset


class OwnRegression(OwnData):
    """Data of your own, in files, with a number as the label of each example.

    A model predicts one number. The loss is the mean squared error.
    """

    has_accuracy: ClassVar[bool] = False

    @model_validator(mode="after")
    def _has_no_classes(self) -> Self:
        if self.labels is not None:
            raise ValueError("labels: the examples have numbers, not classes; leave labels out")
        if not isinstance(self.partition, Iid | Natural | QuantitySkew):
            raise ValueError(
                f"partition: {self.partition.kind} divides examples by classes, but these have "
                f"numbers; expected iid, natural or quantity"
            )
        return self

    def dataset(self) -> Dataset:
        return read_own(self, numbers=True)

    def open(self, population: int, seed: int) -> OpenOwnRegression:
        return OpenOwnRegression(self, *self.divided(population, seed), seed)


class OpenOwnRegression(OpenClassification):
    """An open regression task."""

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        from torch.nn.functional import mse_loss

        return mse_loss(outputs.view_as(y), y)

    def scores(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        from torch.nn.functional import mse_loss

        return mse_loss(outputs.view_as(y), y, reduction="none"), None

    def metrics_on(self, module: nn.Module, examples: Examples) -> dict[str, float]:
        import torch

        outputs = predict(module, examples.x)  # (examples, 1)
        loss = self.loss(outputs, torch.from_numpy(examples.y)).item()
        return {"loss": loss + self.penalty(module)}
