"""The contract of a hosted task: devices train with code that brings its own data, model, loss and
optimizer, as the apps of other frameworks do."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from muster.common.errors import ConfigError
from muster.tasks.task import Examples, OpenTask

if TYPE_CHECKING:
    from torch import Tensor, nn

    from muster.common.tensors import Vector


@dataclass(frozen=True, slots=True)
class HostedUpdate:
    """The result of a device's training by a hosted task.

    Attributes:
        trained: float32, shape (parameters,).
        examples: number of examples that the app reports; > 0.
        loss: the training loss that the app reports; nan if it reports none.
        kept: what the device keeps for its next training. It is part of the device's durable state.
    """

    trained: Vector
    examples: int
    loss: float
    kept: bytes


class HostedTask(OpenTask):
    """An open task that trains by itself. muster's own training never sees its examples, so it has
    no loss, and a client's examples are only counted."""

    @abstractmethod
    def train(
        self, index: int, client: str, received: Vector, seed: int, round: int, kept: bytes
    ) -> HostedUpdate:
        """Train the client at `index` of the population for a call.

        The result depends on the arguments alone.

        Args:
            received: shape (parameters,); not changed.
            seed: the scenario's.
            round: the round of the call.
            kept: what the device kept of its last training; empty before the first.

        Raises:
            ConfigError: the app failed, or did not return a model that fits.
        """

    def warm(self) -> None:
        """Import what the first training would import, before devices are forked."""

    def client(self, index: int) -> Examples:
        return _counted(self.examples[index])

    def test(self) -> Examples:
        return _counted(0)

    def loss(self, outputs: Tensor, y: Tensor) -> NoReturn:
        raise ConfigError("task: the app has a loss of its own, which muster cannot compute")

    @abstractmethod
    def metrics(self, module: nn.Module) -> dict[str, float]:
        """Evaluate `module` as the app does; the loss is nan if the app measures none."""


def _counted(count: int) -> Examples:
    """Examples without content."""
    return Examples(np.zeros((count, 0), np.float32), np.zeros(count, np.int64))
