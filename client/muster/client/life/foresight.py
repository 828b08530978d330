"""Foresight: the state of devices that does not depend on what they do, for many steps at once.

Computing a step takes some microseconds right after the one before, and many times as long when the
process has slept in between and its caches are cold.
"""

from typing import NamedTuple

import numpy as np

from muster.client.availability import DeviceBatch
from muster.client.faults.life_effects import LifeEffects
from muster.client.life.settings import Life
from muster.client.life.surroundings import DeviceSurroundings
from muster.common.bounds import FORESEEN_STEPS
from muster.common.seeds import BoolArray, FloatArray, IntArray

_STEPS = FORESEEN_STEPS
"""Number of steps that are computed at once, a block."""

TICK_S = 300.0
"""Longest tick in scenario seconds. Batteries are computed tick by tick within a step."""


class Beginning(NamedTuple):
    """The state at the beginning of a step; arrays of shape (n,) that the caller must not alter.

    Attributes:
        hour: local hour of the day.
        network: index into NETWORKS.
        available: whether the availability process is on; None if that depends on X.
    """

    hour: FloatArray
    network: IntArray
    unmetered: BoolArray
    available: BoolArray | None


class Foresight:
    """The future of a batch of devices, as far as it does not depend on what they do.

    Attributes:
        ticks: number of ticks in a step. Batteries are computed tick by tick.
        tick_s: length of a tick in scenario seconds.
    """

    def __init__(
        self,
        life: Life,
        batch: DeviceBatch,
        surroundings: DeviceSurroundings,
        effects: LifeEffects,
    ) -> None:
        self.ticks = max(1, int(np.ceil(life.step_s / TICK_S)))
        self.tick_s = life.step_s / self.ticks
        self._life = life
        self._batch = batch
        self._surroundings = surroundings
        self._effects = effects
        reads_x = bool(life.availability.needs()[1])
        self._process = None if reads_x else life.availability.process(batch)
        self._steps: tuple[int, list[Beginning]] = -1, []
        self._ticks: tuple[int, list[tuple[BoolArray, BoolArray]]] = -1, []

    def beginning(self, step: int) -> Beginning:
        """The state at the beginning of a step."""
        block, place = divmod(step, _STEPS)
        if self._steps[0] != block:
            steps = range(block * _STEPS, (block + 1) * _STEPS)
            self._steps = block, [self._beginning(step) for step in steps]
        return self._steps[1][place]

    def away_steps(self, step: int) -> IntArray | None:
        """Number of steps after this one in which each device is certainly unavailable, shape (n,).

        Only the rest of the block is looked at. None if availability depends on X.
        """
        if self._process is None:
            return None
        self.beginning(step)
        later = [begins.available for begins in self._steps[1][step % _STEPS + 1 :]]
        steps = np.zeros(len(self._batch.clients), dtype=np.int64)
        away = np.ones(len(steps), dtype=np.bool_)
        for available in later:
            away &= ~available  # type: ignore[operator]  # there is a process
            if not away.any():
                break
            steps += away
        return steps

    def _beginning(self, step: int) -> Beginning:
        context = self._batch.scene(step)
        times = np.full(len(self._batch.clients), context.time_s)
        network = self._surroundings.network(times)
        unmetered = self._surroundings.unmetered(network)
        available = None if self._process is None else self._process.on(context)
        if (effects := self._effects.at(step)) is not None:
            unmetered = unmetered & ~effects.metered
            available = None if available is None else available & ~effects.offline
        return Beginning(context.hour, network, unmetered, available)

    def habits(self, tick: int) -> tuple[BoolArray, BoolArray]:
        """Whether devices are plugged in by habit, and whether they are idle, as a tick begins."""
        block, place = divmod(tick, _STEPS)
        if self._ticks[0] != block:
            ticks = range(block * _STEPS, (block + 1) * _STEPS)
            self._ticks = block, [self._habits(tick) for tick in ticks]
        return self._ticks[1][place]

    def _habits(self, tick: int) -> tuple[BoolArray, BoolArray]:
        times = np.full(len(self._batch.clients), tick * self.tick_s)
        idle = self._surroundings.idle(times)
        if self._life.device.battery is None:
            return np.ones(len(times), dtype=np.bool_), idle
        plugged = self._surroundings.plugged(times)
        if (effects := self._effects.at(tick // self.ticks)) is not None:
            plugged = plugged & ~effects.unplugged
        return plugged, idle
