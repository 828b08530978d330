"""How a device trains (the `[training]` table of a scenario), and what its processes are given.

Read by the emulator before a run and by every device from what the server sends; no torch here.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from muster.client.life import Life, SimulatedDevice
from muster.client.trainer import AnyTrainer
from muster.common.bounds import MOST_EXAMPLES, Count, ExampleCount, NotNegative, Positive
from muster.common.compression import AnyCodec, Whole
from muster.common.config import Section
from muster.common.lines import LinkModel
from muster.common.schedules import Rate, rate_at


def _batch_size(value: object) -> object:
    if value == "full" or (type(value) is int and 1 <= value <= MOST_EXAMPLES):
        return value
    # One sentence here, where the union would report one mistake per alternative.
    raise ValueError(
        f'expected a whole number from 1 to {MOST_EXAMPLES:,} or "full", found {value!r}'
    )


class Training(Section):
    """Local training of a round, the same for all devices."""

    optimizer: Literal["sgd"] = "sgd"
    """Plain stochastic gradient descent: θ ← θ − η g."""

    learning_rate: Rate = 0.1
    """η: a positive number, or a schedule over rounds."""

    local_steps: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """Minibatch steps of a round, over reshuffled passes; 0 trains nothing. Or `local_epochs`."""

    local_epochs: Count | None = None
    """Passes over the device's examples in a round; 1 where `local_steps` is absent too."""

    batch_size: Annotated[ExampleCount | Literal["full"], BeforeValidator(_batch_size)] = 32
    """Examples of a minibatch; the last one of a pass may be smaller. "full": all examples."""

    projection_radius: Positive | None = None
    """After every local step the parameters are projected onto the ball of this radius around the
    origin, θ ← Π_C(θ − η g) (agnostic FedAvg). Absent: no projection."""

    proximal_mu: NotNegative = 0.0
    """μ of the term μ/2 ‖θ − received‖² that FedProx adds to the local loss (Li et al., Federated
    Optimization in Heterogeneous Networks, MLSys 2020, eq. 2)."""

    gradient: bool = False
    """Return the mean minibatch gradient at the received parameters (FedSGD), not a trained delta;
    of one minibatch where neither `local_steps` nor `local_epochs` is given."""

    trainer: AnyTrainer | None = None
    """Your own training, `"module:function"` with the signature of `muster.client.training.train`,
    or a table of its name as `kind` and its settings. It is given what else stands here."""

    @model_validator(mode="before")
    @classmethod
    def _default_length(cls, values: object) -> object:
        if not isinstance(values, Mapping) or {"local_steps", "local_epochs"} & values.keys():
            return values
        return {**values, "local_steps" if values.get("gradient") is True else "local_epochs": 1}

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.local_steps is not None and self.local_epochs is not None:
            raise ValueError(
                "local_steps and local_epochs both say how long a device trains; found "
                f"{self.local_steps} and {self.local_epochs}, expected one of them"
            )
        if self.gradient and (self.projection_radius is not None or self.proximal_mu):
            raise ValueError(
                "gradient = true takes no local step, so projection_radius and proximal_mu have "
                "nothing to act on; leave them out"
            )
        return self

    def learning_rate_at(self, round: int) -> float:
        """Return η in `round`, which counts from 1."""
        return rate_at(self.learning_rate, round)

    def examples_seen(self, held: int) -> int:
        """Examples that go through the model in a round, on a device that holds `held`."""
        if self.local_steps is None:
            return (self.local_epochs or 1) * held
        size = held if self.batch_size == "full" else min(self.batch_size, held)
        passes, steps = divmod(self.local_steps, math.ceil(held / size))
        return passes * held + min(steps * size, held)


class ClockSettings(Section):
    """Which clock device life and deadlines run on."""

    kind: Literal["rounds", "wall", "scaled"] = "rounds"
    """rounds: lockstep, on scenario time, reproducible. wall: as it comes. scaled: life goes
    `scale` times as fast as the clock on the wall."""

    round_s: Annotated[float, Field(ge=0.01, le=604_800)] = 60.0
    """A step of device life, in scenario seconds: lockstep advances by it with every round;
    otherwise it is how long a draw of availability holds."""

    scale: Annotated[float, Field(ge=1e-3, le=1e6)] = 1.0
    """scaled: scenario seconds per second."""

    starts_at_h: Annotated[float, Field(ge=0, lt=24)] = 0.0
    """Hour of the day, UTC, at scenario time 0."""

    @model_validator(mode="after")
    def _scale_belongs_to_scaled(self) -> Self:
        if self.scale != 1.0 and self.kind != "scaled":
            raise ValueError(f"scale = {self.scale:g} needs kind = 'scaled'; found {self.kind!r}")
        return self


class PackMember(Section):
    """One device of a pack."""

    client: str
    index: int
    """Position in the population; decides the share of the data."""

    position: int = 0
    """In its group, from 0."""

    examples_per_s: float | None = None
    """Modelled speed of training; absent: as fast as the host, which counts as 0 seconds."""

    zone_h: float = 0.0
    """Hours that local time is ahead of UTC."""

    z: dict[str, float] = Field(default_factory=dict)
    """Covariates Z as numbers; a category is `name=level`, 0 or 1."""

    def being(self) -> SimulatedDevice:
        """The device as its life sees it."""
        return SimulatedDevice(self.client, self.position, self.zone_h, self.z)


class SlotsPort(Section):
    """Where the gateway of a group grants channel slots."""

    address: str
    """host:port."""

    queue: bool
    """Whether devices take turns in transferring, rather than being denied."""


class PackProcess(Section):
    """What a process of devices is started with; as a rule it is one device."""

    name: str
    """Of the process and its log: the client, or the first and the last of them."""

    devices: list[PackMember]
    compression: AnyCodec = Whole(kind="none")
    """How their updates travel."""

    life: Life | None = None
    """What their lives are computed from; absent: they have none, and obey."""

    clock: ClockSettings = ClockSettings()
    """Which clock their lives run on."""

    capacity: float = 1.0
    """Share of a model that they can train."""

    line: LinkModel = LinkModel()
    """Their link in the scenario's model; the network itself is their gateway's."""

    least: LinkModel = LinkModel()
    """The link at its least, when all that may transfer at once share it: how patient to be, and
    how much to send at once."""

    slots: SlotsPort | None = None
    """Where channel slots are granted; absent: they need none."""

    torch_device: str = "cpu"
    """Torch's name of where they train: cpu, or cuda:0 and so on."""

    seed: int
    population: int
    """Devices of the whole scenario."""

    task: str
    """JSON of the scenario's [task]; the server's word is checked against it."""

    address: str
    """host:port of the server or of the pack's gateway."""

    token: str
    """The fleet's token, hexadecimal."""

    folder: str
    """`devices` of the run folder; each device has a folder of its own in it."""


class PackContainer(Section):
    """What several packs in one container are started with."""

    packs: list[PackProcess]


class NurseryProcess(Section):
    """What a nursery is started with."""

    task: str
    """JSON of the scenario's [task]."""

    population: int
    seed: int
    folder: str
    """The run folder."""
