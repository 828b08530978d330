"""The devices of the population, as the configuration of the server's process describes them."""

from muster.common.config import Section
from muster.common.lines import LinkModel


class TrainingTime(Section):
    """How long the training of a device takes in a round, in modelled seconds."""

    least_s: float = 0.0
    most_s: float = 0.0
    """With all faults that slow the device down."""


class PopulationMember(Section):
    """One device of the population, as the server knows it before the device enrolls."""

    client: str
    group: str
    examples: int
    enrolled: bool = True
    """Whether the device may train. This is decided once, before the run."""

    z: dict[str, float] | None = None
    """Covariates Z as numbers. Absent with limited information, until the device enrolls."""

    most_steps: int | None = None
    """Most local steps that the device takes in a round. Absent: not known, because a function of
    the user's trains."""

    training_time: TrainingTime | None = None
    """How long the device trains in a round. Absent: not known."""

    line: LinkModel | None = None
    """The scenario's model of the device's link. Absent: modelled transfers take no time."""
