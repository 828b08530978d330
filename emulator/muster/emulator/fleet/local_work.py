"""The local training of a scenario: what devices are told, and what the server knows of it."""

from collections.abc import Iterator, Sequence

from muster.client.config import Length, Training
from muster.client.optimizers import Sgd
from muster.server.aggregators import Need
from muster.server.config import ServerSettings
from muster.server.knowledge.local_work import LocalWork


def announced_training(training: Training, server: ServerSettings) -> Training:
    """The training that the server announces to devices: the scenario's, with what the aggregator
    and privacy need."""
    wanted: dict[str, object] = {}
    if Need.LOSS in server.aggregator.needs():
        wanted["initial_loss"] = True
    if server.aggregator.control:
        wanted["control_variates"] = True
    if server.privacy is not None and server.privacy.where == "device":
        wanted |= {"clip_update": server.privacy.clip, "update_noise": server.privacy.deviation}
    return training.model_copy(update=wanted)


def most_steps(training: Training, length: Length, examples: int) -> int | None:
    """The most local steps of a device in a round; None if a user's own function trains.

    Args:
        length: that of its group.
    """
    if training.trainer is not None:
        return None
    return training.lasting(length).steps(examples)


def local_work_of(training: Training, lengths: Sequence[Length]) -> LocalWork:
    """What an aggregator may know of a scenario's local training.

    Args:
        lengths: those of the groups.
    """
    optimizer = training.optimizer
    return LocalWork(
        learning_rate=training.learning_rate,
        momentum=optimizer.momentum if isinstance(optimizer, Sgd) else 0.0,
        proximal_mu=training.proximal_mu,
        other=list(_other(training, lengths)),
    )


def _other(training: Training, lengths: Sequence[Length]) -> Iterator[str]:
    """Name the settings with which an update is not a sum of gradients with known weights."""
    optimizer = training.optimizer
    if not isinstance(optimizer, Sgd):
        yield f"training.optimizer = {optimizer.kind!r}"
    elif optimizer.nesterov:
        yield "training.optimizer.nesterov"
    elif optimizer.weight_decay:
        yield "training.optimizer.weight_decay"
    elif optimizer.momentum and training.proximal_mu:
        yield "training.optimizer.momentum together with training.proximal_mu"
    rate = training.learning_rate_at(1)  # no schedule rises above its first rate
    if training.proximal_mu * rate >= 1:
        yield (
            f"training.proximal_mu · learning_rate = {training.proximal_mu * rate:g}, which is not "
            f"below 1"
        )
    if training.trainer is not None:
        yield f"training.trainer = {training.trainer.kind!r}"
    if training.gradient:
        yield "training.gradient"
    if training.projection_radius is not None:
        yield "training.projection_radius"
    if training.clip_update is not None:
        yield "training.clip_update"
    if any(training.lasting(length).local_steps == 0 for length in lengths):
        yield "local_steps = 0"
