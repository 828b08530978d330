"""The settings of simulated devices, and the values that the simulation computes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from pydantic import Field

from muster.client.availability import AnyAvailability
from muster.client.availability.always import Always
from muster.client.faults.scheduled import DeviceFault, faults_of, life_faults
from muster.client.life.connectivity import NETWORKS
from muster.client.life.covariates import Covariates
from muster.client.life.device_settings import DROP_OUT, DeviceSettings
from muster.client.life.participation import REQUIREMENTS, ParticipationSettings
from muster.common.config import Section
from muster.common.exchange import DeviceState, Reason
from muster.common.lines import LinkModel
from muster.common.seeds import BoolArray, FloatArray, IntArray

Row = tuple[float, ...]
"""One device's simulated state: the step, and the values of STATE."""

VERDICTS: Final = (
    None,
    Reason.OFFLINE,
    Reason.POWERED_OFF,
    Reason.BATTERY,
    *REQUIREMENTS.values(),
    Reason.UNWILLING,
    Reason.DROP_OUT,
    Reason.INTERRUPTED,
    Reason.SLOT_TAKEN,
)
"""The possible results of a call: None if the device takes part, or the reason why it does not.
The code of a result is its index here."""

CODE: Final = {reason: code for code, reason in enumerate(VERDICTS)}


class Effort(NamedTuple):
    """The modelled effort of a round's work for every device; arrays of shape (n,).

    Attributes:
        train_s: seconds of training.
        transfer_s: seconds of the transfers of model and update; 0 if no link is emulated.
        down_s, up_s: seconds of the transfers in which the radio receives and sends. NaN stands for
            `bytes_down` or `bytes_up` over the nominal rate of the device's network.
    """

    train_s: FloatArray
    transfer_s: FloatArray
    down_s: FloatArray
    up_s: FloatArray
    bytes_down: float
    bytes_up: float

    def slowed(self, factor: FloatArray) -> "Effort":
        """The effort of devices whose training takes `factor` times as long, shape (n,)."""
        return self._replace(train_s=self.train_s * factor)

    def alone(self) -> "Effort":
        """The effort of devices that train a model of their own, and send no update. It decides
        what their batteries lose."""
        return self._replace(up_s=np.zeros_like(self.up_s))

    @property
    def work_s(self) -> FloatArray:
        """Seconds from the call to the end of the work."""
        work_s: FloatArray = self.train_s + self.transfer_s
        return work_s

    @property
    def devices(self) -> int:
        return len(self.train_s)


def effort_of(
    train_s: FloatArray, lines: Sequence[LinkModel], bytes_down: float, bytes_up: float
) -> Effort:
    """The effort of a round for devices with these links.

    Args:
        train_s: modelled seconds of training, shape (n,).
    """
    down_s = [line.down_s(bytes_down) if line.down_bps else np.nan for line in lines]
    up_s = [line.up_s(bytes_up) if line.up_bps else np.nan for line in lines]
    transfer_s = [line.transfer_s(bytes_down, bytes_up) for line in lines]
    return Effort(
        train_s, np.array(transfer_s), np.array(down_s), np.array(up_s), bytes_down, bytes_up
    )


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
        return DROP_OUT.get(self.device.profile, 0.0) if given is None else given


class SimulatedDevice(NamedTuple):
    """A device that is simulated.

    Attributes:
        position: its position in its group, from 0.
        zone_h: hours by which its local time is ahead of UTC.
        z: its covariates Z as numbers, by name; categories as `name=level`.
        charge: the charge of its battery at scenario time 0, as a share; None: it is drawn.
    """

    client: str
    position: int
    zone_h: float
    z: Mapping[str, float]
    charge: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """The observable state of devices at an instant; arrays of shape (n,).

    Attributes:
        network: index into NETWORKS.
        dead: whether the battery ran out.
        available: whether the device can be reached.
        x: covariates X by name.
        changes: whether anything about the devices can change at all.
    """

    charge: FloatArray
    charging: BoolArray
    idle: BoolArray
    network: IntArray
    unmetered: BoolArray
    hour: FloatArray
    dead: BoolArray
    available: BoolArray
    x: Mapping[str, FloatArray]
    changes: bool

    def state(self, i: int) -> DeviceState | None:
        """The state of device `i` as it is reported; None if it is always the same."""
        if not self.changes:
            return None
        return DeviceState(
            battery=float(self.charge[i]),
            charging=bool(self.charging[i]),
            idle=bool(self.idle[i]),
            network=NETWORKS[self.network[i]].name,
            unmetered=bool(self.unmetered[i]),
            hour=float(self.hour[i]),
        )

    def covariates(self, i: int) -> tuple[float, ...]:
        """The covariates X of device `i`, in the order of the scenario."""
        return tuple(float(values[i]) for values in self.x.values())


@dataclass(frozen=True, slots=True, eq=False)
class Decided:
    """The results of calling devices; arrays over the devices.

    Attributes:
        code: index into VERDICTS.
        accepted: whether the device accepts the call, even if it gives up later.
        share: the share of the work that the device does; less than 1 if it gives up.
    """

    code: IntArray
    accepted: BoolArray
    share: FloatArray

    def unwilling(self) -> "Decided":
        """The same results, except that no device takes part: those that are called work for
        themselves."""
        code = np.where(self.code == 0, CODE[Reason.UNWILLING], self.code)
        return Decided(code, self.accepted, self.share)

    def reason(self, k: int) -> Reason | None:
        """Why the k-th device does not take part; None if it does."""
        return VERDICTS[int(self.code[k])]
