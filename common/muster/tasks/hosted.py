"""The contract of a hosted task: devices train with code that brings its own data, model, loss and
optimizer, as the apps of other frameworks do."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, Protocol

import numpy as np

from muster.common.errors import ConfigError
from muster.tasks.task import Examples, OpenTask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor, nn

    from muster.common.tensors import Vector
    from muster.tasks.replies import DeviceReply, Measured


@dataclass(frozen=True, slots=True)
class HostedUpdate:
    """The result of a device's training by a hosted task.

    Attributes:
        trained: float32, shape (parameters,).
        examples: number of examples that the app reports; > 0.
        loss: the training loss that the app reports; nan if it reports none.
        kept: what the device keeps for its next training. It is part of the device's durable state.
        report: what the app reports beside the update, for its strategy; empty without an
            instruction.
    """

    trained: Vector
    examples: int
    loss: float
    kept: bytes
    report: bytes = b""


class StrategyRounds(Protocol):
    """The rounds of a run, as the strategy of an app uses them."""

    def measured(self, metrics: Measured) -> None:
        """Say what the app has measured since the last round; before the first, of the initial
        model."""

    def train(
        self, model: Vector, instructions: Mapping[int, bytes], timeout_s: float | None
    ) -> Mapping[int, DeviceReply]:
        """Let devices train in a round; return the reply of each.

        Args:
            model: from which they train, float32, shape (parameters,).
            instructions: what each device is told, by its index in the population.
            timeout_s: seconds after which the strategy no longer waits; None: no limit.
        """


class HostedTask(OpenTask):
    """An open task that trains by itself. muster's own training never sees its examples, so it has
    no loss, and a client's examples are only counted."""

    @abstractmethod
    def train(
        self,
        index: int,
        client: str,
        received: Vector,
        seed: int,
        round: int,
        kept: bytes,
        instruction: bytes = b"",
    ) -> HostedUpdate:
        """Train the client at `index` of the population for a call.

        The result depends on the arguments alone.

        Args:
            received: shape (parameters,); not changed.
            seed: the scenario's.
            round: the round of the call.
            kept: what the device kept of its last training; empty before the first.
            instruction: what the strategy of the app tells the device; empty if it does not run.

        Raises:
            ConfigError: the app failed, or did not return a model that fits.
        """

    def run_strategy(self, rounds: StrategyRounds, devices: Sequence[int]) -> Vector | None:
        """Run the strategy of the app over the rounds of the fleet; return its last model.

        With the same replies it does the same again. None if the strategy does not say which model
        its last round has made.

        Args:
            devices: the indices of the devices that may be called.

        Raises:
            ConfigError: the app has no strategy, or it failed.
        """
        raise ConfigError("task: the app has no strategy; take an aggregator of muster")

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
