"""The settings of simulated devices, of their clock, and of the devices of a pack."""

from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple, Self

from pydantic import Field, model_validator

from muster.client.availability import AnyAvailability
from muster.client.availability.always import Always
from muster.client.faults.scheduled import DeviceFault, faults_of, life_faults
from muster.client.life.covariates import Covariates
from muster.client.life.device_settings import DeviceSettings, drop_out_of
from muster.client.life.participation import ParticipationSettings
from muster.common.clock_kinds import ClockKind, is_lockstep
from muster.common.config import Section
from muster.common.lines import LinkModel


class Life(Section):
    """The settings from which the devices of a group are simulated."""

    group: str
    size: int
    """Number of devices in the group."""

    device: DeviceSettings = DeviceSettings()
    availability: AnyAvailability = Always(kind="always")
    participation: ParticipationSettings = ParticipationSettings()
    covariates: Covariates = Covariates()
    step_s: float
    """Length of a step in scenario seconds."""

    start_h: float = 0.0
    """Hour of the day, UTC, at scenario time 0."""

    tells_propensity: bool = False
    """Whether devices report their true probability of taking part among X; for oracles."""

    faults: list[DeviceFault] = Field(default_factory=list)
    """The faults that act on the devices; those of updates have no effect here."""

    def of(self, clients: Sequence[str]) -> "Life":
        """The same settings, with the faults of these devices alone."""
        return self.model_copy(update={"faults": faults_of(self.faults, clients)})

    @property
    def eventful(self) -> bool:
        """Whether there is anything to simulate; a device without events accepts every call."""
        return (
            self.device.lives
            or self.device.speed_sigma > 0
            or self.availability.kind != "always"
            or bool(self.covariates.x)
            or self.participation.willing != 1.0
            or self.drop_out > 0
            or self.tells_propensity
            or bool(life_faults(self.faults))
            or self.asks_for_costs
        )

    @property
    def asks_for_costs(self) -> bool:
        """Whether devices ask if their network costs money before they judge a model."""
        utility = self.participation.rational
        return utility is not None and utility.cost_per_mb > 0

    @property
    def drop_out(self) -> float:
        """Probability that a round's work is lost for reasons other than the device's state."""
        given = self.participation.drop_out
        return drop_out_of(self.device.profile) if given is None else given


class SimulatedDevice(NamedTuple):
    """A device that is simulated.

    Attributes:
        position: its position in its group, from 0.
        zone_h: hours by which its local time is ahead of UTC.
        z: its covariates Z as numbers, by name; categories as `name=level`.
        charge: the charge of its battery at scenario time 0, as a share; None: it is drawn.
        battery_mah: the capacity of its battery; None: that of all devices of the group.
    """

    client: str
    position: int
    zone_h: float
    z: Mapping[str, float]
    charge: float | None = None
    battery_mah: float | None = None


class PackMember(Section):
    """One device of a pack."""

    client: str
    index: int
    """Position in the population; decides the device's share of the data."""

    position: int = 0
    """Position in its group, from 0."""

    examples_per_s: float | None = None
    """Modelled speed of training. Absent: as fast as the host, and training counts as 0 seconds."""

    zone_h: float = 0.0
    """Hours by which local time is ahead of UTC."""

    z: dict[str, float] = Field(default_factory=dict)
    """Covariates Z as numbers; a category is `name=level`, 0 or 1."""

    charge: float | None = None
    """Charge of the battery at scenario time 0, as a share. Absent: the device draws it."""

    battery_mah: float | None = None
    """Capacity of the battery. Absent: that of all devices of the group."""

    line: LinkModel = LinkModel()
    """The model of its link."""

    def being(self) -> SimulatedDevice:
        """The device as the simulation needs it."""
        return SimulatedDevice(
            self.client, self.position, self.zone_h, self.z, self.charge, self.battery_mah
        )


class ClockSettings(Section):
    """The clock of device life and deadlines."""

    kind: ClockKind = "rounds"
    """rounds: lockstep; every round advances scenario time by `round_s`, and runs are reproducible.
    modelled: lockstep too; a round advances it by as long as its modelled work lasts. wall:
    scenario time is wall time. scaled: scenario time runs `scale` times as fast as wall time."""

    round_s: Annotated[float, Field(ge=0.01, le=604_800)] = 60.0
    """Length of a step of device life, in scenario seconds. With "rounds" every round is a step. On
    the other clocks a draw of availability holds for a step."""

    scale: Annotated[float, Field(ge=1e-3, le=1e6)] = 1.0
    """scaled: scenario seconds per wall second."""

    starts_at_h: Annotated[float, Field(ge=0, lt=24)] = 0.0
    """Hour of the day (UTC) at scenario time 0."""

    @model_validator(mode="after")
    def _scale_belongs_to_scaled(self) -> Self:
        if self.scale != 1.0 and self.kind != "scaled":
            raise ValueError(f"scale = {self.scale:g} needs kind = 'scaled'; found {self.kind!r}")
        return self

    @property
    def lockstep(self) -> bool:
        """Whether the clock advances with the rounds."""
        return is_lockstep(self.kind)
