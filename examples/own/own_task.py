"""A user's own task, model and trainer, for own_task.toml beside this file.

The scenario names each as `module:function`. The module must be importable, here by PYTHONPATH.
The parameters of a function that muster does not pass itself are its settings: they stand in the
scenario beside its name, and muster refuses a wrong one before anything starts.
"""

import math
from typing import Any

import numpy as np
from torch import Tensor, nn

from muster.client.config import Training
from muster.client.training import Trained
from muster.client.training import train as muster_train
from muster.common.seeds import stream
from muster.tasks.models import Model, initial_module
from muster.tasks.task import Examples, OpenTask


class Waves(OpenTask):
    """Client i knows noisy values of sin(x + φ_i) at some points x; all clients learn one curve."""

    def __init__(
        self, population: int, seed: int, model: Model, noise: float, spread: float
    ) -> None:
        self.examples = [40] * population  # how many each client trains on
        self._seed, self._model = seed, model
        self._noise, self._spread = noise, spread

    def client(self, index: int) -> Examples:
        # Each client has its own stream, so its data do not depend on how many others there are.
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
    """Make the task for `[task] name`. Settings: `model`, which muster knows, and two more."""
    return Waves(population, seed, model, noise, spread)


def make_model(inputs: tuple[int, ...], outputs: int, *, width: int = 32) -> nn.Module:
    """Make the model of `[task.model]`. It must have no buffers: only parameters travel."""
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
    """Train as muster does, then limit the norm of the update: `[training.trainer]`.

    `named` has seed, client, round and base_version. The result must depend on the arguments alone,
    because a round that is repeated after a crash must give the same update.
    """
    trained = muster_train(task, module, received, examples, settings, **named)
    norm = float(np.linalg.norm(trained.delta))
    factor = np.float32(min(1.0, max_norm / norm) if norm else 1.0)
    return Trained(trained.delta * factor, trained.examples, trained.loss, trained.train_steps)
