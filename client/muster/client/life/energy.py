"""The power of devices in each phase of a call: what a battery's currents mean in watts, or the
powers of a device on mains. Arrays of shape (n,) over calls."""

from typing import NamedTuple

import numpy as np

from muster.client.life.battery import radio_currents
from muster.client.life.device_settings import DeviceSettings
from muster.common.seeds import FloatArray, IntArray


class Phases(NamedTuple):
    """A quantity of each phase of calls.

    Attributes:
        compute: training, beyond what the idle device takes.
        radio_down, radio_up: receiving and sending, beyond the same.
        idle: what the device takes anyway, for as long as the call keeps it.
    """

    compute: FloatArray
    radio_down: FloatArray
    radio_up: FloatArray
    idle: FloatArray


def energy_j(device: DeviceSettings, voltage: float, network: IntArray, seconds: Phases) -> Phases:
    """The joules of calls.

    Args:
        voltage: nominal voltage of batteries.
        network: index into NETWORKS.
        seconds: how long each phase lasts; idle is as long as the call keeps the device.
    """
    watts = _watts(device, voltage, network)
    return Phases(*(power * lasts for power, lasts in zip(watts, seconds, strict=True)))


def _watts(device: DeviceSettings, voltage: float, network: IntArray) -> Phases:
    same = np.ones(len(network))
    if (battery := device.battery) is not None:
        down_ma, up_ma = radio_currents(battery, network)
        currents = Phases(battery.training_ma * same, down_ma, up_ma, battery.idle_ma * same)
        return Phases(*(current * voltage / 1000 for current in currents))
    assert device.power is not None, "refused when the scenario is read"
    power = device.power
    watts = power.training_w, power.receiving_w, power.sending_w, power.idle_w
    return Phases(*(each * same for each in watts))
