"""The fault `label-flip`."""

from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from muster.client.faults.contract import UpdateFault
from muster.common.errors import ConfigError
from muster.common.requirements import Requirement
from muster.tasks.task import Examples

Label = Annotated[int, Field(ge=0, le=1_000_000)]


class LabelFlip(UpdateFault):
    """The device trains on wrong labels. Without settings it replaces every label y of k classes by
    k − 1 − y (Fang et al., Local model poisoning attacks to Byzantine-robust federated learning,
    USENIX Security 2020). With `source` and `into` it replaces one label by another (Tolpegin et
    al., Data poisoning attacks against federated learning systems, ESORICS 2020)."""

    requires: ClassVar[frozenset[Requirement]] = frozenset({Requirement.LABELS})

    source: Label | None = None
    """The label that is replaced; absent: all of them."""

    into: Label | None = None
    """The label that takes its place."""

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.source is None) != (self.into is None):
            raise ValueError(
                f"source and into belong together; found source = {self.source} and into = "
                f"{self.into}"
            )
        return self

    def poison(self, examples: Examples, classes: int) -> Examples:
        if not np.issubdtype(examples.y.dtype, np.integer):
            raise ConfigError(
                "label-flip replaces the labels of a classification; the task has numbers instead"
            )
        if self.source is None:
            return Examples(examples.x, (classes - 1 - examples.y).astype(np.int64))
        assert self.into is not None
        if max(self.source, self.into) >= classes:
            raise ConfigError(
                f"label-flip: expected labels below {classes}, the number of classes, found "
                f"source = {self.source} and into = {self.into}"
            )
        flipped = np.where(examples.y == self.source, self.into, examples.y)
        return Examples(examples.x, flipped.astype(np.int64))
