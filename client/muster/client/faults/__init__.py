"""Faults that act inside devices: on their lives (offline, slow …) and on their updates (NaN,
scaled …). One file has one fault; to add one, see `emulator/muster/emulator/faults/HOWTO.md`."""

from typing import Annotated

from pydantic import BeforeValidator, SerializeAsAny

from muster.client.faults.battery_drain import BatteryDrain
from muster.client.faults.contract import LifeEffect, LifeFault, UpdateFault
from muster.client.faults.corrupt import CorruptUpdate
from muster.client.faults.duplicate import DuplicateUpdate
from muster.client.faults.false_examples import FalseExamples
from muster.client.faults.free_rider import FreeRider
from muster.client.faults.huge import Huge
from muster.client.faults.label_flip import LabelFlip
from muster.client.faults.metered import Metered
from muster.client.faults.nan_update import NanUpdate
from muster.client.faults.offline import Offline
from muster.client.faults.reordered import ReorderedUpdate
from muster.client.faults.replay import ReplayedUpdate
from muster.client.faults.scaled import Scaled
from muster.client.faults.sign_flip import SignFlip
from muster.client.faults.slow import Slow
from muster.client.faults.unplug import Unplug
from muster.client.faults.wrong_shape import WrongShape
from muster.common.faults import FaultKind
from muster.common.plugins import Registry

GROUP = "muster.faults"
"""Entry-point group in which installed packages add faults."""

BUILT_IN: dict[str, type[FaultKind]] = {
    "offline": Offline,
    "slow": Slow,
    "battery-drain": BatteryDrain,
    "unplug": Unplug,
    "metered": Metered,
    "nan": NanUpdate,
    "huge": Huge,
    "scaled": Scaled,
    "sign-flip": SignFlip,
    "free-rider": FreeRider,
    "label-flip": LabelFlip,
    "false-examples": FalseExamples,
    "wrong-shape": WrongShape,
    "corrupt": CorruptUpdate,
    "reordered": ReorderedUpdate,
    "duplicate": DuplicateUpdate,
    "replay": ReplayedUpdate,
}
DEVICE_FAULTS = Registry("fault of devices", GROUP, BUILT_IN)
AnyDeviceFault = Annotated[SerializeAsAny[FaultKind], BeforeValidator(DEVICE_FAULTS.parse)]
"""A fault that acts inside a device, as a setting."""

__all__ = [
    "BUILT_IN",
    "DEVICE_FAULTS",
    "GROUP",
    "AnyDeviceFault",
    "LifeEffect",
    "LifeFault",
    "UpdateFault",
]
