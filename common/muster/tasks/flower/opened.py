"""The task `flower`. Neither flwr nor torch is imported before the app is used."""

from __future__ import annotations

import importlib
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from muster.tasks.flower.settings import FlowerSettings
from muster.tasks.hosted import HostedTask, HostedUpdate, StrategyRounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from muster.common.tensors import Vector
    from muster.tasks.flower.loaded import LoadedApp

REHEARSAL_S = 600.0
"""Most wall seconds that a rehearsal may take. A `ServerApp` that waits for what never comes would
wait for ever."""


class Flower(FlowerSettings):
    """A Flower app: its `ClientApp` trains on the devices, unchanged.

    See [flower.md](flower.md). Each device is a node of the app, and its index in the population is
    its `partition-id`. The app brings its data, model, loss and optimizer. It needs
    the extra `flower` ([installing](installing.md)).
    """

    def open(self, population: int, seed: int) -> OpenFlower:
        self.check()
        return OpenFlower(self, population, seed)


class OpenFlower(HostedTask):
    """The app of a scenario, on the nodes of its population.

    It is loaded and rehearsed when it is first used, so a process that only counts examples does
    without it. So does the one that runs its strategy, because that is no rehearsal.

    Args:
        rehearsal_s: wall seconds after which an app that shows no message is refused.
    """

    def __init__(
        self, settings: FlowerSettings, population: int, seed: int, rehearsal_s: float = REHEARSAL_S
    ) -> None:
        self.examples = [settings.examples] * population
        self._settings, self._population, self._seed = settings, population, seed
        self._rehearsal_s = rehearsal_s

    @cached_property
    def _app(self) -> LoadedApp:
        from muster.tasks.flower.loaded import LoadedApp

        return LoadedApp(self._settings, self._population, self._seed, self._rehearsal_s)

    def warm(self) -> None:
        for name in self._app.modules:
            with suppress(Exception):  # some modules can only be imported by others
                importlib.import_module(name)

    def module(self) -> nn.Module:
        return self._app.module()

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
        return self._app.train(index, client, received, seed, round, kept, instruction)

    def count_examples(self) -> list[int]:
        """Let every device train once, on the initial model, and return what it states."""
        return self._app.count_examples()

    def run_strategy(self, rounds: StrategyRounds, devices: Sequence[int]) -> Vector | None:
        from muster.tasks.flower.strategy import run_server_app

        return run_server_app(self._settings, self._population, self._seed, rounds, devices)

    def metrics(self, module: nn.Module) -> dict[str, float]:
        return self._app.metrics(module)
