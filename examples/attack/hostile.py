"""A trainer with which some devices send wrong updates, for attack.toml beside it."""

from typing import Any

import numpy as np
from torch import nn

from muster.client.config import Training
from muster.client.trainer import Trained
from muster.client.training import train as muster_train
from muster.tasks.task import Examples, OpenTask


def train(
    task: OpenTask,
    module: nn.Module,
    received: np.ndarray,
    examples: Examples,
    settings: Training,
    *,
    group: str = "hostile",
    factor: float = -10.0,
    client: str,
    **named: Any,
) -> Trained:
    """`[training] trainer`. muster's own training; devices of `group` send `factor` times their
    update. `group` and `factor` are settings."""
    trained = muster_train(task, module, received, examples, settings, client=client, **named)
    if not client.startswith(f"{group}-"):
        return trained
    delta = trained.delta * np.float32(factor)
    return Trained(delta, trained.examples, trained.loss, trained.train_steps)
