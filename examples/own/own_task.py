"""A task, a model and a trainer of one's own, for own_task.toml beside it.

The scenario names each as `module:function`; muster imports the module from the folder of the
scenario. Parameters of a function that muster does not give are its settings: they stand in the
scenario beside its name, and a wrong one is refused before anything starts.
"""

import math
from typing import Any

import numpy as np
from torch import Tensor, nn

from muster.client.training.local import train as muster_train
from muster.client.training.settings import Training
from muster.client.training.trainer import Trained
from muster.common.seeds import stream
from muster.tasks.models import Model, initial_module
from muster.tasks.task import Examples, OpenTask


class Waves(OpenTask):
    """Client i knows sin(x + φ_i) at some places x, give or take noise; all learn one curve."""

    def __init__(
        self, population: int, seed: int, model: Model, noise: float, spread: float
    ) -> None:
        self.examples = [40] * population  # how many each client trains on
        self._seed, self._model = seed, model
        self._noise, self._spread = noise, spread

    def client(self, index: int) -> Examples:
        # A stream of the client's own: its data do not depend on how many others there are.
        random = stream(self._seed, "waves", index)
        x = random.uniform(-math.pi, math.pi, (40, 1)).astype(np.float32)
        phase = self._spread * random.standard_normal()
        y = np.sin(x[:, 0] + phase) + self._noise * random.standard_normal(40)
        return Examples(x, y.astype(np.float32))

    def test(self) -> Examples:
        x = np.linspace(-math.pi, math.pi, 200, dtype=np.float32)
        return Examples(x[:, np.newaxis], np.sin(x))

    def module(self) -> nn.Module:
        return initial_module(self._model, (1,), 1, self._seed)

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return (outputs.squeeze(1) - y).square().mean()


def make_task(
    population: int, seed: int, *, model: Model, noise: float = 0.1, spread: float = 0.2
) -> OpenTask:
    """`[task] name`. The settings are `model`, which muster knows, and two of its own."""
    return Waves(population, seed, model, noise, spread)


def make_model(inputs: tuple[int, ...], outputs: int, *, width: int = 32) -> nn.Module:
    """`[task] model`. docs/models.md says what becomes of its parameters and buffers."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(math.prod(inputs), width), nn.Tanh(), nn.Linear(width, outputs)
    )


def train(
    task: OpenTask,
    module: nn.Module,
    received: np.ndarray,
    examples: Examples,
    settings: Training,
    *,
    max_norm: float = 1.0,
    **named: Any,
) -> Trained:
    """`[training] trainer`. muster's own training, and then a bound on how far a client goes.

    `named` are seed, client, round and base_version. The result must depend on the arguments alone:
    a round that is repeated after a crash must give the same update.
    """
    trained = muster_train(task, module, received, examples, settings, **named)
    norm = float(np.linalg.norm(trained.delta))
    factor = np.float32(min(1.0, max_norm / norm) if norm else 1.0)
    return Trained(trained.delta * factor, trained.examples, trained.loss, trained.train_steps)
