"""The effects of faults on the lives of many devices at once, step by step."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from muster.client.faults.contract import LifeFault
from muster.client.faults.scheduled import DeviceFault, life_faults
from muster.common.seeds import BoolArray, FloatArray, IntArray

_KEPT = 128
"""Number of steps whose effects are kept: more than a block of the foresight."""

_NEVER = np.iinfo(np.int64).max


class StepEffects(NamedTuple):
    """What faults do in a step; arrays of shape (n,) that the caller must not alter."""

    offline: BoolArray
    unplugged: BoolArray
    metered: BoolArray
    drain_per_h: FloatArray
    slowdown: FloatArray


class LifeEffects:
    """The effects of faults on the lives of some devices.

    Args:
        clients: the devices, in the order of the arrays.
    """

    def __init__(self, faults: Sequence[DeviceFault], clients: Sequence[str]) -> None:
        self._clients = clients
        places = {client: place for place, client in enumerate(clients)}
        self._acting: list[tuple[LifeFault, IntArray]] = []
        # Life faults have windows of steps alone; see `muster.emulator.fleet.device_faults`.
        firsts, ends, owners = list[int](), list[int](), list[int]()
        for fault in life_faults(faults):
            assert isinstance(fault.do, LifeFault)
            struck: dict[int, list[int]] = {}
            for client, number in fault.devices.items():
                if client in places:
                    struck.setdefault(number, []).append(places[client])
            for number, devices in struck.items():
                windows = fault.windows[number]
                firsts += (window.first for window in windows)
                ends += (_NEVER if window.end is None else window.end for window in windows)
                owners += [len(self._acting)] * len(windows)
                self._acting.append((fault.do, np.array(devices, dtype=np.int64)))
        self._first, self._end, self._owner = np.array([firsts, ends, owners], dtype=np.int64)
        self._known: dict[int, StepEffects | None] = {}

    def at(self, step: int) -> StepEffects | None:
        """The effects in a step; None if no fault acts."""
        if not self._acting:
            return None
        if step not in self._known:
            while len(self._known) >= _KEPT:
                self._known.pop(next(iter(self._known)))
            self._known[step] = self._found(step)
        return self._known[step]

    def _found(self, step: int) -> StepEffects | None:
        acting = np.flatnonzero((self._first <= step) & (step < self._end))
        if not len(acting):
            return None
        n = len(self._clients)
        offline, unplugged, metered = np.zeros((3, n), dtype=np.bool_)
        drain, slowdown = np.zeros(n), np.ones(n)
        for do, places in (self._acting[owner] for owner in self._owner[acting]):
            effect = do.effect()
            offline[places] |= effect.offline
            unplugged[places] |= effect.unplugged
            metered[places] |= effect.metered
            drain[places] += effect.drain_per_h
            slowdown[places] *= effect.slowdown
        return StepEffects(offline, unplugged, metered, drain, slowdown)
