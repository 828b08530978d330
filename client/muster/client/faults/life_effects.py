"""The effects of faults on the lives of many devices at once, step by step."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from muster.client.faults.contract import LifeFault
from muster.client.faults.scheduled import DeviceFault, life_faults
from muster.common.seeds import BoolArray, FloatArray

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
        windows = [
            (fault.do, places[client], window)
            for fault in life_faults(faults)
            for client, windows in fault.windows.items()
            if client in places
            for window in windows
        ]
        self._acting = [(do, place) for do, place, _ in windows]
        # Life faults have windows of steps alone; see `muster.emulator.faults.device_faults`.
        self._first = np.array([window.first for *_, window in windows], dtype=np.int64)
        ends = [_NEVER if window.end is None else window.end for *_, window in windows]
        self._end = np.array(ends, dtype=np.int64)
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
        for do, place in (self._acting[number] for number in acting):
            assert isinstance(do, LifeFault)
            effect = do.effect()
            offline[place] |= effect.offline
            unplugged[place] |= effect.unplugged
            metered[place] |= effect.metered
            drain[place] += effect.drain_per_h
            slowdown[place] *= effect.slowdown
        return StepEffects(offline, unplugged, metered, drain, slowdown)
