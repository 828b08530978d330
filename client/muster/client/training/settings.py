"""Settings of local training (the `[training]` table of a scenario). It does not import torch."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from muster.client.training.augmentations import AnyAugmentations
from muster.client.training.by_device import AnyByDevice
from muster.client.training.optimizers import PLAIN, AnyOptimizer
from muster.client.training.trainer import AnyTrainer
from muster.common.bounds import (
    MOST_EXAMPLES,
    ROUNDS,
    Count,
    ExampleCount,
    NotNegative,
    Positive,
)
from muster.common.config import Section, validate
from muster.common.errors import ConfigError
from muster.common.schedules import Rate, rate_at


def _batch_size(value: object) -> object:
    if value == "full" or (type(value) is int and 1 <= value <= MOST_EXAMPLES):
        return value
    # One message here, because the union would report one mistake per alternative.
    raise ValueError(
        f'expected a whole number from 1 to {MOST_EXAMPLES:,} or "full", found {value!r}'
    )


AnyBatchSize = Annotated[ExampleCount | Literal["full"], BeforeValidator(_batch_size)]
"""The size of a minibatch as a setting."""


class DeviceTraining(Section):
    """What may differ in the local training of a device from that of others of its group."""

    local_steps: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """Number of minibatch steps in a round, instead of the length that `training` gives."""

    local_epochs: Count | None = None
    """Number of passes over the device's examples in a round, instead of the length that `training`
    gives."""

    batch_size: AnyBatchSize | None = None
    """Number of examples in a minibatch, instead of that of `training`."""

    learning_rate: Rate | None = None
    """The learning rate, a number or a schedule over rounds, instead of that of `training`."""

    @model_validator(mode="after")
    def _once(self) -> Self:
        _length_once(self.local_steps, self.local_epochs)
        return self

    @property
    def given(self) -> dict[str, Any]:
        """The settings that it has. The length is given as a whole."""
        found = {name: getattr(self, name) for name in type(self).model_fields}
        some = {name: value for name, value in found.items() if value is not None}
        return (dict.fromkeys(_LENGTH) if some.keys() & _LENGTH else {}) | some


class GroupTraining(DeviceTraining):
    """What differs in the local training of a group's devices from what `training` says."""

    optimizer: AnyOptimizer | None = None
    """How a device takes its local steps, instead of the optimizer of `training`: a name, or a
    table, for example with its own momentum and weight decay."""

    clip_norm: Positive | None = None
    """Largest norm of the gradient of a local step, instead of that of `training`."""

    proximal_mu: NotNegative | None = None
    """μ of FedProx, instead of that of `training`."""

    clip_update: Positive | None = None
    """Largest norm of what a device returns, instead of that of `training`."""

    update_noise: NotNegative | None = None
    """Standard deviation of the noise on what a device returns, instead of that of `training`."""

    projection_radius: Positive | None = None
    """Radius of the ball onto which parameters are projected, instead of that of `training`."""

    augmentations: AnyAugmentations | None = None
    """Random changes of the examples of minibatches, instead of those of `training`; `[]`: none."""

    trainer: AnyTrainer | None = None
    """Your own training function, instead of that of `training`."""

    by_device: AnyByDevice | None = None
    """Your function that says what differs for each device, instead of that of `training`."""


_LENGTH = {"local_steps", "local_epochs"}


class Training(Section):
    """Local training in a round. What `groups.training` has may differ between groups."""

    optimizer: AnyOptimizer = PLAIN
    """How a device takes its local steps: a name, or a table with the name as `kind` and the
    optimizer's settings. Devices keep no optimizer state between rounds: momentum and moments begin
    anew in every round."""

    learning_rate: Rate = 0.1
    """The learning rate η: a positive number, or a schedule over rounds."""

    local_steps: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """Number of minibatch steps in a round; the examples are reshuffled for every pass. 0 trains
    nothing. Give either `local_steps` or `local_epochs`, not both."""

    local_epochs: Count | None = None
    """Number of passes over the device's examples in a round; 1 if `local_steps` is absent too."""

    batch_size: AnyBatchSize = 32
    """Number of examples in a minibatch; the last minibatch of a pass may be smaller. "full": all
    examples."""

    clip_norm: Positive | None = None
    """Largest norm of the gradient of a local step; a longer gradient is scaled to it. It is the
    gradient of a minibatch's loss with the task's ridge and the proximal term, and without the
    optimizer's weight decay. Absent: gradients are not clipped."""

    clip_update: Positive | None = None
    """Largest norm of what a device returns: its delta or, with `gradient = true`, its gradient. A
    longer one is scaled to it, before compression. Absent: updates are not clipped."""

    update_noise: NotNegative = 0.0
    """Standard deviation of the Gaussian noise that is added to every number of what a device
    returns, after `clip_update` and before compression. `server.privacy` with `where = "device"`
    sets both."""

    initial_loss: bool = False
    """Whether a device also measures its loss at the received model, over all its examples, and
    reports it. An aggregator that needs this loss, such as q-fedavg, turns it on."""

    evaluate_every: Annotated[int, Field(ge=0, le=ROUNDS)] = 0
    """Number of versions from one that devices evaluate, on examples of their own and before they
    train from it, to the next; 0: none. `server.evaluate_on` sets it."""

    control_variates: bool = False
    """Whether a device corrects its local steps by control variates. The aggregator scaffold turns
    it on; with other aggregators it is refused."""

    projection_radius: Positive | None = None
    """Radius of the ball around the origin onto which the parameters are projected after every
    local step, θ ← Π_C(θ − η g) (agnostic FedAvg). Frozen parameters do not count. Absent: no
    projection."""

    proximal_mu: NotNegative = 0.0
    """μ of the term μ/2 ‖θ − received‖² that FedProx adds to the local loss (Li et al., Federated
    Optimization in Heterogeneous Networks, MLSys 2020, eq. 2)."""

    gradient: bool = False
    """Whether a device returns the mean minibatch gradient at the received parameters (FedSGD)
    instead of a trained delta. If neither `local_steps` nor `local_epochs` is given, it is the
    gradient of one minibatch."""

    augmentations: AnyAugmentations = Field(default=[])
    """Random changes of the examples of each minibatch, one after the other, drawn anew in every
    pass and never in an evaluation: names, tables with their `kind` and settings, or functions of
    your own, `module:function` ([data.md](data.md#augmentations))."""

    trainer: AnyTrainer | None = None
    """Your own training function: `"module:function"` with the signature of
    `muster.client.training.local.train`, or a table with that name as `kind` and the function's
    settings. The function receives the other keys of this table."""

    by_device: AnyByDevice | None = None
    """Your own function that says what differs for each device: `"module:function"`, or a table
    with that name as `kind` and the function's settings. It receives the device's name and its
    number of examples, and returns a table with any of `local_steps`, `local_epochs`, `batch_size`
    and `learning_rate`; an empty one changes nothing. Several programs call it, so it has to return
    the same for the same device."""

    together: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Largest number of devices of a process that train at the same time, as one computation. It
    saves time if a model is small and a process has many devices (`groups.devices_per_process`).
    Possible for linear models and multilayer perceptrons that train all of their parameters,
    without hooks, masks and control variates. Sums
    are rounded differently, so updates differ by the rounding of float32 from those of devices that
    train one after the other."""

    @model_validator(mode="before")
    @classmethod
    def _default_length(cls, values: object) -> object:
        if not isinstance(values, Mapping) or _LENGTH & values.keys():
            return values
        return {**values, "local_steps" if values.get("gradient") is True else "local_epochs": 1}

    @model_validator(mode="after")
    def _once(self) -> Self:
        _length_once(self.local_steps, self.local_epochs)
        return self

    @property
    def vectors(self) -> int:
        """Number of vectors of the model's length in a download, and in an update."""
        return 2 if self.control_variates else 1

    def learning_rate_at(self, round: int) -> float:
        """Return η in `round`, which counts from 1."""
        return rate_at(self.learning_rate, round)

    def minibatch(self, held: int) -> int:
        """Number of examples in a minibatch of a device that holds `held` examples."""
        return held if self.batch_size == "full" else min(self.batch_size, held)

    def examples_seen(self, held: int) -> int:
        """Number of examples seen in a round by a device that holds `held` examples."""
        if self.local_steps is None or not held:
            return (self.local_epochs or 1) * held
        size = self.minibatch(held)
        passes, steps = divmod(self.local_steps, math.ceil(held / size))
        return passes * held + min(steps * size, held)

    def steps(self, held: int) -> int:
        """Number of local steps that a device with `held` examples takes in a round."""
        if self.local_steps is not None or not held:
            return self.local_steps or 0
        return (self.local_epochs or 1) * math.ceil(held / self.minibatch(held))

    def of(self, differs: DeviceTraining) -> Self:
        """Return these settings with what differs in a group, or for a device."""
        return self.model_copy(update=given) if (given := differs.given) else self

    def of_device(self, client: str, examples: int) -> Self:
        """Return these settings with what `by_device` says of a device.

        Raises:
            ConfigError: the function fails, returns something else than such settings, or not the
                same ones if it is called again, as other processes do.
        """
        if self.by_device is None or not examples:
            return self
        place = f"training.by_device = {self.by_device.kind!r}, for {client}"
        try:
            differs, again = (self.by_device.of(client, examples) for _ in range(2))
        except Exception as error:
            raise ConfigError(f"{place}: it raised {type(error).__name__}: {error}") from error
        if not isinstance(differs, Mapping):
            raise ConfigError(
                f"{place}: expected a table such as {{'local_epochs': 2}}, or an empty one, found "
                f"{differs!r}"
            )
        if differs != again:
            raise ConfigError(
                f"{place}: it returned {differs!r}, and {again!r} when it was called again; "
                f"expected the same every time. If it draws numbers, seed the generator from the "
                f"name of the device"
            )
        return self.of(validate(DeviceTraining, dict(differs), place))


def _length_once(steps: int | None, epochs: int | None) -> None:
    if steps is not None and epochs is not None:
        raise ValueError(
            "local_steps and local_epochs both say how long a device trains; found "
            f"{steps} and {epochs}, expected one of them"
        )
