"""What will be whatever devices do, computed for many steps at once.

A step costs a device some microseconds when it follows the one before at once, and many times that
when the process has slept in between and its caches are cold.
"""

from typing import NamedTuple

import numpy as np

from muster.client.availability import DeviceBatch
from muster.client.life import Life
from muster.client.surroundings import DeviceSurroundings
from muster.common.seeds import BoolArray, FloatArray, IntArray

_STEPS = 32
"""Steps of a block."""

TICK_S = 300.0
"""Within a step nothing but the clock is looked at more often than this, scenario seconds."""


class Beginning(NamedTuple):
    """The beginning of a step; arrays of shape (n,), not the caller's to alter.

    Attributes:
        hour: local hour of the day.
        network: index into NETWORKS.
        available: whether availability has them on; None where that depends on X.
    """

    hour: FloatArray
    network: IntArray
    unmetered: BoolArray
    available: BoolArray | None


class Foresight:
    """What will be of a cast, whatever it does.

    Attributes:
        ticks: of a step; `tick_s` scenario seconds each. Batteries are computed tick by tick.
    """

    def __init__(self, life: Life, cast: DeviceBatch, surroundings: DeviceSurroundings) -> None:
        self.ticks = max(1, int(np.ceil(life.step_s / TICK_S)))
        self.tick_s = life.step_s / self.ticks
        self._life = life
        self._cast = cast
        self._surroundings = surroundings
        reads_x = bool(life.availability.needs()[1])
        self._process = None if reads_x else life.availability.process(cast)
        self._steps: tuple[int, list[Beginning]] = -1, []
        self._ticks: tuple[int, list[tuple[BoolArray, BoolArray]]] = -1, []

    def beginning(self, step: int) -> Beginning:
        """The beginning of a step."""
        block, place = divmod(step, _STEPS)
        if self._steps[0] != block:
            steps = range(block * _STEPS, (block + 1) * _STEPS)
            self._steps = block, [self._beginning(step) for step in steps]
        return self._steps[1][place]

    def away_steps(self, step: int) -> IntArray | None:
        """For how many steps after this one devices are certainly not available, as far as is
        foreseen, shape (n,); None where that depends on X."""
        if self._process is None:
            return None
        self.beginning(step)
        later = [begins.available for begins in self._steps[1][step % _STEPS + 1 :]]
        steps = np.zeros(len(self._cast.clients), dtype=np.int64)
        away = np.ones(len(steps), dtype=np.bool_)
        for available in later:
            away &= ~available  # type: ignore[operator]  # there is a process
            if not away.any():
                break
            steps += away
        return steps

    def _beginning(self, step: int) -> Beginning:
        scene = self._cast.scene(step)
        times = np.full(len(self._cast.clients), scene.time_s)
        network = self._surroundings.network(times)
        unmetered = self._surroundings.unmetered(network)
        available = None if self._process is None else self._process.on(scene)
        return Beginning(scene.hour, network, unmetered, available)

    def habits(self, tick: int) -> tuple[BoolArray, BoolArray]:
        """Who is plugged in by habit, and who is idle, at the beginning of a tick."""
        block, place = divmod(tick, _STEPS)
        if self._ticks[0] != block:
            ticks = range(block * _STEPS, (block + 1) * _STEPS)
            self._ticks = block, [self._habits(tick) for tick in ticks]
        return self._ticks[1][place]

    def _habits(self, tick: int) -> tuple[BoolArray, BoolArray]:
        times = np.full(len(self._cast.clients), tick * self.tick_s)
        idle = self._surroundings.idle(times)
        if self._life.device.battery is None:
            return np.ones(len(times), dtype=np.bool_), idle
        return self._surroundings.plugged(times), idle
