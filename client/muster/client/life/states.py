"""The state of simulated devices at an instant, and the results of calling them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from muster.client.life.connectivity import NETWORKS
from muster.client.life.participation import REQUIREMENTS
from muster.common.exchange import DeviceState, Reason
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
