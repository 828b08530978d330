"""Devices that switch on and off at instants of their own: a Markov chain in continuous time.

Dwells are exponential, as of mahimahi's `mm-onoff` (Netravali et al., Mahimahi: Accurate
Record-and-Replay for HTTP, USENIX ATC 2015). Number 0 of a device decides how it starts, number i
how long its i-th dwell lasts; instants are sums in that order, so it never matters which instants
were asked for.
"""

import numpy as np

from muster.client.availability.contract import (
    Availability,
    AvailabilityProcess,
    DeviceBatch,
    StepContext,
)
from muster.common.bounds import LongTime
from muster.common.seeds import BoolArray, FloatArray, IntArray, Numbers

_BLOCK = 64

_MOST_SWITCHES = 1000
"""Of a device in a step: every one of them is drawn."""


class _Own:
    """Uniform numbers that every device reads at an index of its own.

    Devices drift apart, so each has its own two blocks: the one that it is in, and the one that
    work which ends later looks into. Memory is bounded, however long a life is.
    """

    def __init__(self, cast: DeviceBatch) -> None:
        self._cast = cast
        self._blocks = np.full((len(cast.clients), 2), -1)
        self._numbers = np.empty((len(cast.clients), 2, _BLOCK))

    def at(self, rows: IntArray, indices: IntArray) -> FloatArray:
        """The numbers at `indices` of the devices `rows`, shape of both."""
        blocks, places = np.divmod(indices, _BLOCK)
        slots = blocks % 2
        absent = self._blocks[rows, slots] != blocks
        for block in np.unique(blocks[absent]):
            self._make(rows[absent & (blocks == block)], int(block))
        found: FloatArray = self._numbers[rows, slots, places]
        return found

    def _make(self, rows: IntArray, block: int) -> None:
        clients = [self._cast.clients[row] for row in rows]
        numbers = Numbers(self._cast.seed, ("availability",), clients, ahead=_BLOCK)
        for place in range(_BLOCK):
            self._numbers[rows, block % 2, place] = numbers.at(block * _BLOCK + place)[:, 0]
        self._blocks[rows, block % 2] = block


class _Markov(AvailabilityProcess):
    def __init__(self, cast: DeviceBatch, mean_up_s: float, mean_down_s: float) -> None:
        super().__init__(cast)
        self._mean_up_s, self._mean_down_s = mean_up_s, mean_down_s
        self._share = mean_up_s / (mean_up_s + mean_down_s)
        self._numbers = _Own(cast)
        # Where the scene stands: the dwell that each device is in, from 1, and the instant at which
        # it ends, in scenario seconds.
        self._time_s = 0.0
        self._dwell = np.zeros(len(cast.clients), dtype=np.int64)
        self._ends = np.zeros(len(cast.clients))
        self._begins_up = self._numbers.at(np.arange(len(self._dwell)), self._dwell) < self._share

    def on(self, scene: StepContext) -> BoolArray:
        if scene.time_s < self._time_s:
            self._dwell[:], self._ends[:] = 0, 0.0  # The past is not kept: start over.
        self._time_s = scene.time_s
        self._advance(self._dwell, self._ends, np.full(len(self._ends), scene.time_s))
        return self._up(self._dwell)

    def chance(self, scene: StepContext) -> FloatArray:
        return np.full(len(self.cast.clients), self._share)

    def still_on(self, scene: StepContext, until_s: FloatArray) -> BoolArray:
        self.on(scene)
        dwell = self._dwell.copy()
        self._advance(dwell, self._ends.copy(), until_s)
        return self._up(dwell)

    def _advance(self, dwell: IntArray, ends: FloatArray, times_s: FloatArray) -> None:
        """Let `dwell` and `ends`, in place, become those of an instant for every device."""
        rows = np.flatnonzero(ends <= times_s)
        while len(rows):
            dwell[rows] += 1
            mean_s = np.where(self._up(dwell, rows), self._mean_up_s, self._mean_down_s)
            ends[rows] -= mean_s * np.log1p(-self._numbers.at(rows, dwell[rows]))
            rows = rows[ends[rows] <= times_s[rows]]

    def _up(self, dwell: IntArray, rows: IntArray | slice = slice(None)) -> BoolArray:
        """Whether the devices `rows` are available in their dwells: in odd ones as they began."""
        up: BoolArray = self._begins_up[rows] == (dwell[rows] & 1)
        return up


class Markov(Availability):
    """It switches on and off at any instant, and how long it stays so is exponential.

    The start is stationary: it is available at any instant with probability
    mean_up_s / (mean_up_s + mean_down_s).
    """

    mean_up_s: LongTime
    """Mean of how long it stays available, scenario seconds."""

    mean_down_s: LongTime
    """Mean of how long it stays away, scenario seconds."""

    def process(self, cast: DeviceBatch) -> AvailabilityProcess:
        return _Markov(cast, self.mean_up_s, self.mean_down_s)

    def check(self, group: str, size: int, step_s: float) -> None:
        both_s = self.mean_up_s + self.mean_down_s
        if 2 * step_s / both_s > _MOST_SWITCHES:
            raise ValueError(
                f"mean_up_s + mean_down_s = {both_s:g} s: a device would switch about "
                f"{2 * step_s / both_s:,.0f} times in a step of clock.round_s = {step_s:g} s, "
                f"expected at most {_MOST_SWITCHES:,}; take longer means or shorter steps"
            )
