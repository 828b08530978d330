"""Availability as a Markov chain in continuous time: devices switch on and off at any instant.

Dwell times are exponential, as in mahimahi's `mm-onoff` (Netravali et al., Mahimahi: Accurate
Record-and-Replay for HTTP, USENIX ATC 2015). Number 0 of a device decides in which state it starts,
and number i decides how long its i-th dwell lasts. The instants of switching are sums in that
order, so they do not depend on the instants at which the process was evaluated.
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
"""Most switches of a device in a step, on average. Every switch is drawn, which takes time."""


class _DeviceNumbers:
    """Uniform numbers that every device reads at an index of its own.

    The indices of devices drift apart, so every device has two blocks of its own: the block of its
    current index, and the next one, which is read to see whether the device is still available when
    its work ends. Memory is bounded, however long the run is.
    """

    def __init__(self, batch: DeviceBatch) -> None:
        self._batch = batch
        self._blocks = np.full((len(batch.clients), 2), -1)
        self._numbers = np.empty((len(batch.clients), 2, _BLOCK))

    def at(self, rows: IntArray, indices: IntArray) -> FloatArray:
        """The numbers at `indices` of the devices `rows`; the same shape as both."""
        blocks, places = np.divmod(indices, _BLOCK)
        slots = blocks % 2
        absent = self._blocks[rows, slots] != blocks
        for block in np.unique(blocks[absent]):
            self._make(np.unique(rows[absent & (blocks == block)]), int(block))
        found: FloatArray = self._numbers[rows, slots, places]
        return found

    def _make(self, rows: IntArray, block: int) -> None:
        clients = [self._batch.clients[row] for row in rows]
        numbers = Numbers(self._batch.seed, ("availability",), clients, ahead=_BLOCK)
        self._numbers[rows, block % 2] = numbers.block(block)[:, :, 0].T
        self._blocks[rows, block % 2] = block


class _Markov(AvailabilityProcess):
    def __init__(self, batch: DeviceBatch, mean_up_s: float, mean_down_s: float) -> None:
        super().__init__(batch)
        self._mean_up_s, self._mean_down_s = mean_up_s, mean_down_s
        self._share = mean_up_s / (mean_up_s + mean_down_s)
        self._numbers = _DeviceNumbers(batch)
        # The state at `_time_s`: the dwell that each device is in, counted from 1, and the instant
        # at which it ends, in scenario seconds.
        self._time_s = 0.0
        self._dwell = np.zeros(len(batch.clients), dtype=np.int64)
        self._ends = np.zeros(len(batch.clients))
        self._begins_up = self._numbers.at(np.arange(len(self._dwell)), self._dwell) < self._share

    def on(self, context: StepContext) -> BoolArray:
        if context.time_s < self._time_s:
            self._dwell[:], self._ends[:] = 0, 0.0  # past dwells are not kept, so start over
        self._time_s = context.time_s
        self._advance(self._dwell, self._ends, np.full(len(self._ends), context.time_s))
        return self._up(self._dwell)

    def chance(self, context: StepContext) -> FloatArray:
        return np.full(len(self.batch.clients), self._share)

    def still_on(self, context: StepContext, until_s: FloatArray) -> BoolArray:
        self.on(context)
        dwell = self._dwell.copy()
        self._advance(dwell, self._ends.copy(), until_s)
        return self._up(dwell)

    def _advance(self, dwell: IntArray, ends: FloatArray, times_s: FloatArray) -> None:
        """Change `dwell` and `ends` in place to those at `times_s`, an instant for every device."""
        rows = np.flatnonzero(ends <= times_s)
        while len(rows):
            # As many dwells at once as one device is expected to pass.
            longest_s = float((times_s[rows] - ends[rows]).max())
            number = min(_BLOCK, 1 + int(2 * longest_s / (self._mean_up_s + self._mean_down_s)))
            dwells = dwell[rows, None] + np.arange(1, number + 1)
            mean_s = np.where(self._up(dwells, rows[:, None]), self._mean_up_s, self._mean_down_s)
            drawn = self._numbers.at(np.broadcast_to(rows[:, None], dwells.shape), dwells)
            sums = np.empty((len(rows), number + 1))
            sums[:, 0], sums[:, 1:] = ends[rows], -mean_s * np.log1p(-drawn)
            np.cumsum(sums, axis=1, out=sums)
            passed = (sums[:, 1:] <= times_s[rows, None]).sum(axis=1)
            steps = np.minimum(passed + 1, number)
            dwell[rows] += steps
            ends[rows] = sums[np.arange(len(rows)), steps]
            rows = rows[ends[rows] <= times_s[rows]]

    def _up(self, dwell: IntArray, rows: IntArray | slice = slice(None)) -> BoolArray:
        """Whether the devices `rows` are available in dwells, of the same shape.

        In odd dwells a device is in the state in which it began.
        """
        up: BoolArray = self._begins_up[rows] == (dwell & 1)
        return up


class Markov(Availability):
    """A device switches on and off at any instant, and the time between is exponential.

    The start is stationary: at any instant a device is available with probability
    mean_up_s / (mean_up_s + mean_down_s).
    """

    mean_up_s: LongTime
    """Mean time that a device stays available, in scenario seconds."""

    mean_down_s: LongTime
    """Mean time that a device stays unavailable, in scenario seconds."""

    def process(self, batch: DeviceBatch) -> AvailabilityProcess:
        return _Markov(batch, self.mean_up_s, self.mean_down_s)

    def check(self, group: str, size: int, step_s: float) -> None:
        both_s = self.mean_up_s + self.mean_down_s
        if 2 * step_s / both_s > _MOST_SWITCHES:
            raise ValueError(
                f"mean_up_s + mean_down_s = {both_s:g} s: a device would switch about "
                f"{2 * step_s / both_s:,.0f} times in a step of clock.round_s = {step_s:g} s, "
                f"expected at most {_MOST_SWITCHES:,}; take longer means or shorter steps"
            )
