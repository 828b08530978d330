"""The battery model, a balance of currents; arrays of shape (n,) over devices."""

import numpy as np

from muster.client.life.connectivity import NETWORKS, WIFI
from muster.client.life.device_settings import Battery
from muster.client.life.effort import Effort
from muster.common.seeds import BoolArray, FloatArray, IntArray


def charge_after(
    battery: Battery,
    capacity_mah: FloatArray,
    charge: FloatArray,
    seconds: float,
    plugged: BoolArray,
    idle: BoolArray,
) -> FloatArray:
    """Charge, as a share, after some seconds in which nothing changes.

    While a device is plugged in, the charging current is constant up to `taper_from`, and above it
    falls exponentially in the charge. The load is constant. Both parts are solved exactly.
    """
    load = np.where(idle, battery.idle_ma, battery.use_ma) / (3600 * capacity_mah)
    feed = battery.charger_ma / (3600 * capacity_mah)
    unplugged = charge - load * seconds
    if not plugged.any():
        return np.maximum(unplugged, 0.0)
    net = feed - load
    strong = net > 0
    # The seconds until the charging current begins to fall.
    with np.errstate(divide="ignore"):
        linear_s = np.where(strong, np.maximum(battery.taper_from - charge, 0) / net, seconds)
    linear_s = np.minimum(linear_s, seconds)
    linear = charge + net * linear_s
    # Then u = exp((charge − taper_from)/τ) obeys du/dt = (feed − load u)/τ.
    over, balance = np.maximum(linear - battery.taper_from, 0), feed / load
    u = balance + (np.exp(over / battery.taper) - balance) * np.exp(
        -load * (seconds - linear_s) / battery.taper
    )
    falling = battery.taper_from + battery.taper * np.log(u)
    reaches = strong & (charge + net * seconds >= battery.taper_from)
    charged = np.where(reaches, falling, linear)
    return np.clip(np.where(plugged, charged, unplugged), 0.0, 1.0)


def work_drain(
    battery: Battery, capacity_mah: FloatArray, network: IntArray, effort: Effort
) -> FloatArray:
    """Share of the battery that a round's work drains: by training, and by the radio when busy."""
    down_s, up_s = radio_seconds(network, effort)
    down_ma, up_ma = radio_currents(battery, network)
    radio = down_ma * down_s + up_ma * up_s
    drained: FloatArray = (battery.training_ma * effort.train_s + radio) / (3600 * capacity_mah)
    return drained


def radio_currents(battery: Battery, network: IntArray) -> tuple[FloatArray, FloatArray]:
    """Additional currents of receiving and of sending in mA."""
    wifi = network == WIFI
    return (
        np.where(wifi, battery.wifi_rx_ma, battery.cellular_rx_ma),
        np.where(wifi, battery.wifi_tx_ma, battery.cellular_tx_ma),
    )


def radio_seconds(network: IntArray, effort: Effort) -> tuple[FloatArray, FloatArray]:
    """Seconds in which the radio receives and sends in a round's work.

    Energy of a transfer = power × size/rate, so a slow network costs more. The rate is that of the
    device's link, or the nominal rate of its network if no link is emulated.
    """
    nominal_down_s = effort.bytes_down / _DOWN_BPS[network]
    nominal_up_s = effort.bytes_up / _UP_BPS[network]
    down_s = np.where(np.isnan(effort.down_s), nominal_down_s, effort.down_s)
    up_s = np.where(np.isnan(effort.up_s), nominal_up_s, effort.up_s)
    return down_s, up_s


_DOWN_BPS = np.array([network.down_mbps for network in NETWORKS]) * 125_000  # bytes a second
_UP_BPS = np.array([network.up_mbps for network in NETWORKS]) * 125_000
