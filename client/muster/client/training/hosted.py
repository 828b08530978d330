"""Training by a hosted task, whose own code trains (`muster.tasks.hosted`)."""

import numpy as np

from muster.client.training.local import clipped_with_noise
from muster.client.training.settings import Training
from muster.client.training.trainer import Trained
from muster.common.seeds import stream
from muster.common.tensors import Vector
from muster.tasks.hosted import HostedTask


def train_hosted(
    task: HostedTask,
    received: Vector,
    settings: Training,
    *,
    seed: int,
    client: str,
    index: int,
    round: int,
    kept: bytes,
    instruction: bytes = b"",
) -> tuple[Trained, bytes]:
    """Train from the received parameters; return the result and what the device keeps.

    Args:
        received: shape (parameters,); not changed.
        settings: of which `clip_update` and `update_noise` hold; the app decides the rest.
        index: the client's index in the population.
        kept: what the device kept of its last training; empty before the first.
        instruction: what the strategy of the app tells the device; empty if it does not run.
    """
    update = task.train(index, client, received, seed, round, kept, instruction)
    delta = np.subtract(update.trained, received, dtype=np.float32)
    if settings.clip_update is not None:
        delta = clipped_with_noise(delta, settings, stream(seed, "privacy", client, round))
    trained = Trained(delta, update.examples, update.loss, train_steps=0, report=update.report)
    return trained, update.kept
