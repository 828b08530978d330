"""The surroundings of devices, independent of what the devices do: plugs, use, connectivity.

Everything is computed for many devices at once (for one, if it has its own process): arrays of
shape (n,) over a batch's clients. There is no I/O and no clock here; callers pass time as scenario
seconds.
"""

import math
from pathlib import Path
from typing import Final

import numpy as np

from muster.client.availability import DeviceBatch
from muster.client.availability.traces import Toggles, of_devices
from muster.client.life.connectivity import CELLULAR, ETHERNET, NETWORKS, WIFI
from muster.client.life.device_settings import DeviceSettings, RecordedStates
from muster.client.life.state_logs import state_logs
from muster.common.seeds import BoolArray, FloatArray, IntArray, normals

_TOP_UPS = 6
"""Most top-ups in a day; with the default rate a seventh would come once in 10^6 days."""

_NIGHT: Final = (23.0, 7.0)
"""Local hours in which people sleep. Assumption."""

_AT_HOME: Final = (19.0, 8.0)
"""Local hours in which people are usually at home. Assumption."""

_WAKING: Final = (8.0, 22.0)
"""Local hours in which top-ups begin. Assumption."""


class DeviceSurroundings:
    """The surroundings of a batch of devices: plugs, use, connectivity.

    Each is a function of `times`, an instant in scenario seconds for every device. Callers must not
    alter the returned arrays.
    """

    def __init__(self, batch: DeviceBatch, device: DeviceSettings) -> None:
        self._batch = batch
        self._device = device
        self._nights = batch.numbers("charging", width=4 + 3 * _TOP_UPS, every_s=86400.0)
        spell_s = device.use.spell_s if device.use is not None else 900.0
        self._spells = batch.numbers("use", every_s=spell_s)
        self._hours = batch.numbers("connectivity", every_s=3600.0)
        n = len(batch.clients)
        self._always = np.ones(n, dtype=np.bool_)
        self._by_cable = np.full(n, ETHERNET)
        metered = device.connectivity.metered
        self._fixed_price = None if metered is None else np.full(n, not metered)
        self._recorded = None if device.recorded is None else _Recorded(batch, device.recorded)
        self._night = np.full(n, -2, dtype=np.int64)
        self._begins = self._ends = np.empty((n, 0))

    def idle(self, times: FloatArray) -> BoolArray:
        """Whether each device is idle: nobody uses it."""
        use = self._device.use
        if self._recorded is not None:
            return self._recorded.idle(times)
        if use is None:
            return self._always
        spells = (times // use.spell_s).astype(np.int64)
        night = _between(self._batch.hours(times), *_NIGHT)
        chance = np.where(night, use.idle_at_night, use.idle_by_day)
        idle: BoolArray = self._spells.at_each(spells)[:, 0] < chance
        return idle

    def network(self, times: FloatArray) -> IntArray:
        """The network of each device, as an index into NETWORKS."""
        connectivity = self._device.connectivity
        if self._recorded is not None:
            return np.where(self._recorded.wifi(times), WIFI, CELLULAR)
        if connectivity.kind == "fixed":
            return self._by_cable
        home = _between(self._batch.hours(times), *_AT_HOME)
        chance = np.where(home, connectivity.wifi_at_home, connectivity.wifi_away)
        drawn = self._hours.at_each((times // 3600).astype(np.int64))[:, 0]
        return np.where(drawn < chance, WIFI, CELLULAR)

    def unmetered(self, network: IntArray) -> BoolArray:
        """Whether traffic over these networks is free."""
        return _UNMETERED[network] if self._fixed_price is None else self._fixed_price

    def plugged(self, times: FloatArray) -> BoolArray:
        """Whether each device is plugged in by habit; a low battery is another reason."""
        if self._recorded is not None:
            return self._recorded.charging(times)
        # Nights go from noon to noon, local time. They are numbered so that the first is at least 1
        # if local time is at most 12 hours behind, because the night before it matters too.
        local_s = (self._batch.start_h + self._batch.zone_h) * 3600 + times
        nights = ((local_s + 36 * 3600) // 86400).astype(np.int64)
        if (nights != self._night).any():
            self._night = nights
            self._begins, self._ends = self._sessions(nights)
        instant = local_s[:, None]
        during = (self._begins <= instant) & (instant < self._ends)
        plugged: BoolArray = np.logical_or.reduce(during, axis=1)
        return plugged

    def _sessions(self, nights: IntArray) -> tuple[FloatArray, FloatArray]:
        """Begin and end of charging sessions of a night, in local seconds, shape (n, sessions)."""
        begins, ends = zip(*(self._of_night(nights - back) for back in (1, 0)), strict=True)
        return np.concatenate(begins, axis=1), np.concatenate(ends, axis=1)

    def _of_night(self, nights: IntArray) -> tuple[FloatArray, FloatArray]:
        charging, numbers = self._device.charging, self._nights.at_each(nights)
        midnight = (nights - 2) * 86400.0  # of the day at whose noon the night begins
        when, long = normals(numbers[:, 1], numbers[:, 2])
        night_h = charging.night_start_h + charging.night_start_sd_h * when
        hours = np.clip(charging.night_hours + charging.night_hours_sd * long, 0, 12)
        comes = numbers[:, 0] < charging.night_probability
        begin = midnight + np.maximum(night_h, 12.0) * 3600
        end = np.where(comes, begin + hours * 3600, begin)
        count = _poisson(numbers[:, 3], charging.top_ups_per_day)
        at, *lasts = np.split(numbers[:, 4:], 3, axis=1)
        # Waking hours before this noon belong to the night before, those after it to this night.
        at_h = _WAKING[0] + at * (_WAKING[1] - _WAKING[0])
        top_begin = midnight[:, None] + np.where(at_h < 12, at_h + 24, at_h) * 3600
        length = charging.top_up_s * np.exp(charging.top_up_sigma * normals(*lasts)[0])
        counted = np.arange(_TOP_UPS) < count[:, None]
        top_end = np.where(counted, top_begin + length, top_begin)
        return (
            np.concatenate([begin[:, None], top_begin], axis=1),
            np.concatenate([end[:, None], top_end], axis=1),
        )


class _Recorded:
    """What recorded devices did, for a batch of devices. A recording has its own hours of the day,
    which are those of the scenario's clock."""

    def __init__(self, batch: DeviceBatch, states: RecordedStates) -> None:
        logs = state_logs(states.file, Path(states.file).stat().st_mtime_ns)
        who = batch.seed, batch.clients, batch.positions.tolist()
        of_all = zip(*of_devices(logs, *who, states.assign), strict=True)
        self._charging, self._wifi, self._idle = map(Toggles, map(list, of_all))
        self._first_s = batch.start_h * 3600

    def charging(self, times: FloatArray) -> BoolArray:
        """Whether each device charges at `times`, as in `DeviceSurroundings`."""
        return self._charging.on(times + self._first_s)

    def wifi(self, times: FloatArray) -> BoolArray:
        """Whether each device is in a Wi-Fi network."""
        return self._wifi.on(times + self._first_s)

    def idle(self, times: FloatArray) -> BoolArray:
        """Whether nobody uses each device."""
        return self._idle.on(times + self._first_s)


_UNMETERED = np.array([not network.metered for network in NETWORKS])


def _between(hour: FloatArray, begin: float, end: float) -> BoolArray:
    """Whether `hour` is between two hours of the day, across midnight."""
    return (hour >= begin) | (hour < end)


def _poisson(u: FloatArray, mean: float) -> IntArray:
    """Poisson numbers, at most `_TOP_UPS`, from uniform numbers `u`."""
    terms = [math.exp(-mean) * mean**k / math.factorial(k) for k in range(_TOP_UPS)]
    return np.searchsorted(np.cumsum(terms), u, side="right")
