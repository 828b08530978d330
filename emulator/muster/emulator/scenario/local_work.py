"""The local training of a scenario: what devices are told, and what the server knows of it."""

import math
from collections.abc import Iterator, Sequence

from muster.client.faults.contract import LifeFault
from muster.client.faults.scheduled import DeviceFault
from muster.client.training.optimizers import Sgd
from muster.client.training.settings import GroupTraining, Training
from muster.common.bounds import LONGEST_WORK_S
from muster.common.errors import ConfigError
from muster.common.seeds import LARGEST_NORMAL
from muster.emulator.scenario.own_code import own_modules
from muster.server.aggregators.facts import REPORTED
from muster.server.knowledge.local_work import LocalWork
from muster.server.settings.population import TrainingTime
from muster.server.settings.server import ServerSettings
from muster.tasks.task import Task


def announced_training(training: Training, server: ServerSettings) -> Training:
    """The training that the server announces to devices: the scenario's, with what the aggregator
    and privacy need."""
    needs = server.aggregator.needs()
    wanted: dict[str, object] = {fact: True for need, fact in REPORTED.items() if need in needs}
    if server.evaluate_on != "server":
        wanted["evaluate_every"] = server.evaluate_every
    if server.aggregator.control:
        wanted["control_variates"] = True
    if server.privacy is not None and server.privacy.place.in_updates:
        wanted |= {"clip_update": server.privacy.clip, "update_noise": server.privacy.deviation}
    return training.model_copy(update=wanted)


def needs_trial(task: Task, *training: Training | GroupTraining) -> bool:
    """Whether a step is tried before the start: data, model, loss or training are the user's own,
    or examples are augmented, which have to be of the right kind."""
    tried = task.tried or task.model.tried or any(each.augmentations for each in training)
    return tried or any(own_modules([task.model_dump(), *(each.model_dump() for each in training)]))


def most_steps(training: Training, examples: int) -> int | None:
    """The most local steps of a device in a round; None if a user's own function trains.

    Args:
        training: that of the device.
    """
    return None if training.trainer is not None else training.steps(examples)


def training_time(
    training: Training,
    client: str,
    examples: int,
    speed: float | None,
    faults: Sequence[DeviceFault],
    sigma: float = 0.0,
) -> TrainingTime:
    """How long a device trains in a round.

    Args:
        training: that of the device.
        speed: examples per second; None: training takes no modelled time.
        faults: the faults inside devices, of all devices.
        sigma: how much the speed differs from round to round (`device.speed_sigma`).

    Raises:
        ConfigError: it is longer than any work may last.
    """
    if speed is None:
        return TrainingTime()
    usual_s, pace = training.examples_seen(examples) / speed, math.exp(LARGEST_NORMAL * sigma)
    least_s, most_s = usual_s / pace, usual_s * pace * _slowest(faults, client)
    if most_s > LONGEST_WORK_S:
        raise ConfigError(
            f"a round's training of {client} takes {most_s:g} modelled seconds, expected at most "
            f"{LONGEST_WORK_S:g}; choose a higher groups.device.examples_per_s, a smaller "
            f"speed_sigma, shorter training, or a smaller factor of the fault slow"
        )
    return TrainingTime(least_s=least_s, most_s=most_s)


def _slowest(faults: Sequence[DeviceFault], client: str) -> float:
    """The factor of a device's training while all faults that slow it down act together."""
    acting = (fault.do for fault in faults if client in fault.devices)
    return math.prod(do.effect().slowdown for do in acting if isinstance(do, LifeFault))


def local_work_of(training: Training, groups: Sequence[GroupTraining]) -> LocalWork:
    """What an aggregator may know of a scenario's local training.

    Args:
        groups: what differs in each group.
    """
    optimizer = training.optimizer
    return LocalWork(
        learning_rate=training.learning_rate,
        momentum=optimizer.momentum if isinstance(optimizer, Sgd) else 0.0,
        proximal_mu=training.proximal_mu,
        other=list(dict.fromkeys(_other(training, groups))),
    )


def _other(training: Training, groups: Sequence[GroupTraining]) -> Iterator[str]:
    """Name the settings with which an update is not a sum of gradients with known weights."""
    for settings in (training, *map(training.of, groups)):
        yield from _other_steps(settings)
        if settings.trainer is not None:
            yield f"training.trainer = {settings.trainer.kind!r}"
        if settings.projection_radius is not None:
            yield "training.projection_radius"
        if settings.clip_update is not None:
            yield "training.clip_update"
        if settings.by_device is not None:
            yield "training.by_device"
    if training.gradient:
        yield "training.gradient"
    for name in ("learning_rate", "optimizer", "proximal_mu"):
        usual = getattr(training, name)
        if any(group.given.get(name, usual) != usual for group in groups):
            yield f"groups.training.{name}"


def _other_steps(training: Training) -> Iterator[str]:
    """Name the settings of local steps with which that is so."""
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
    if training.local_steps == 0:
        yield "local_steps = 0"
