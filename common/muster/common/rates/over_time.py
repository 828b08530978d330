"""A rate over time: the one value that is made of a recorded link, whatever its format was.

Gateway, modelled durations, plan, verification and refusals use only this.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import cached_property
from typing import Self

import numpy as np

from muster.common.seeds import BoolArray, FloatArray

_PEAK_S = 1.0
_CHUNK = 1 << 18
_SLACK_BITS = 1e-3
_ULPS = 1e-15
"""A sum of floats may be above the bits of a whole piece by so many bits, and by this share of it.
The next piece with a rate may be far away, so `instant` forgives that."""


class RateOverTime:
    """A rate that is constant in each piece of time, and begins again after its period.

    It is stored as the bits that have passed until each instant, so everything is found by binary
    search. All devices share it.

    Args:
        instants: ends of the pieces, in seconds, ascending; the first is 0, the last the period.
        bits: bits that have passed until each instant; the first is 0, the last is above 0.

    Attributes:
        period_s: seconds after which it begins again.
        mean_bps: mean rate, in bits per second.
    """

    def __init__(self, instants: FloatArray, bits: FloatArray) -> None:
        self.instants, self.bits = instants, bits
        self._instants, self._bits = instants.data, bits.data
        self.period_s, self._loop_bits = float(instants[-1]), float(bits[-1])
        self.mean_bps = self._loop_bits / self.period_s

    @classmethod
    def of_pieces(cls, seconds: FloatArray, bps: FloatArray) -> Self:
        """A rate from the lengths of its pieces, in seconds > 0, and the rate in each.

        Raises:
            ValueError: nothing passes, or not all numbers are finite.
        """
        last = np.append(bps[1:] != bps[:-1], True)  # of pieces with the same rate, keep the end
        # A recording may have ten million pieces, so all this is done in place.
        rows = np.zeros((2, 1 + np.count_nonzero(last)))
        instants, bits = rows
        sums = np.cumsum(seconds)
        _keep(sums, last, instants[1:])
        np.multiply(seconds, bps, out=sums)
        np.cumsum(sums, out=sums)
        _keep(sums, last, bits[1:])
        if not (np.isfinite(instants[-1]) and np.isfinite(bits[-1])):
            raise ValueError("expected a finite duration and finite rates")
        if not (instants[-1] > 0 and bits[-1] > 0):
            raise ValueError("expected a rate above 0 at some time, found none")
        return cls(instants, bits)

    # --- at an instant ---------------------------------------------------------------------------

    def total(self, instant: float) -> float:
        """Bits that could have passed `instant` seconds after the beginning."""
        loops, within = divmod(instant, self.period_s)
        place = bisect_right(self._instants, within, 1, len(self._instants) - 1)
        before, after = self._instants[place - 1], self._instants[place]
        share = min(1.0, (within - before) / (after - before))
        of_piece = self._bits[place] - self._bits[place - 1]
        return loops * self._loop_bits + self._bits[place - 1] + of_piece * share

    def instant(self, total: float) -> float:
        """The first instant at which `total` > 0 bits could have passed."""
        loops, target = divmod(total, self._loop_bits)
        slack = _SLACK_BITS + _ULPS * total
        if target <= slack:
            loops, target = loops - 1, self._loop_bits
        place = max(1, bisect_left(self._bits, target - slack))
        before, after = self._bits[place - 1], self._bits[place]
        begin, end = self._instants[place - 1], self._instants[place]
        share = min(1.0, max(0.0, (target - before) / (after - before)))
        return loops * self.period_s + begin + (end - begin) * share

    def finish(self, start_s: float, bits: float) -> float:
        """The instant at which `bits` that begin to pass at `start_s` have passed."""
        if bits <= 0:
            return start_s
        return max(start_s, self.instant(self.total(start_s) + bits))

    def latest(self, end_s: float, bits: float) -> float:
        """The latest instant at which `bits` may begin to pass, to have passed at `end_s`."""
        total = self.total(end_s) - bits
        loops, target = divmod(total, self._loop_bits)
        slack = _SLACK_BITS + _ULPS * abs(total)
        if target + slack >= self._loop_bits:
            loops, target = loops + 1, 0.0
        place = bisect_right(self._bits, target + slack, 1, len(self._bits) - 1)
        before, after = self._bits[place - 1], self._bits[place]
        begin, end = self._instants[place - 1], self._instants[place]
        share = max(0.0, (target - before) / (after - before))
        return loops * self.period_s + begin + (end - begin) * share

    def piece(self, instant: float) -> tuple[float, float]:
        """The rate after an instant, in bits per second, and until when it holds."""
        loops, within = divmod(instant, self.period_s)
        place = bisect_right(self._instants, within, 1, len(self._instants) - 1)
        begin, end = self._instants[place - 1], self._instants[place]
        bps = (self._bits[place] - self._bits[place - 1]) / (end - begin)
        until = loops * self.period_s + end
        if until <= instant:  # rounding at the end of a piece
            return self.piece(math.nextafter(instant, math.inf))
        return bps, until

    # --- of the whole ----------------------------------------------------------------------------

    @cached_property
    def least_bps(self) -> float:
        """Its lowest rate."""
        return min(float((bits / seconds).min()) for seconds, bits in self._pieces())

    @cached_property
    def peak_bps(self) -> float:
        """Its highest mean over a second, or in the long run."""
        most = self.mean_bps * _PEAK_S
        for first in range(0, len(self.instants), _CHUNK):
            edges = self.instants[first : first + _CHUNK]
            at = self._totals(edges)
            after = self._totals(edges + _PEAK_S) - at
            before = at - self._totals(edges - _PEAK_S)
            most = max(most, float(after.max()), float(before.max()))
        return most / _PEAK_S

    @cached_property
    def gap_s(self) -> float:
        """The longest time for which nothing passes."""
        longest = max(
            float(seconds.max(where=bits <= 0, initial=0.0)) for seconds, bits in self._pieces()
        )
        if self._bits[1] > 0:
            return longest
        last = self._instants[-1] - self._instants[-2] if self._bits[-1] <= self._bits[-2] else 0.0
        return max(longest, self._instants[1] + last)

    def _pieces(self) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield seconds and bits of the pieces, many at a time: there may be ten million."""
        for first in range(0, len(self.instants) - 1, _CHUNK):
            part = slice(first, first + _CHUNK + 1)
            yield np.diff(self.instants[part]), np.diff(self.bits[part])

    def span_s(self, bits: float) -> tuple[float, float]:
        """The shortest and the longest time that `bits` > 0 take, whenever they begin."""
        begins = self.instants[:-1]
        of_begins = self._instants_of(self._totals(begins) + bits) - begins
        of_ends = self.instants[1:] - self._instants_of(self.bits[1:] - bits)
        # Between these, it changes steadily. Where nothing passes for a while, the one that just
        # misses the last bit waits for the next.
        found = np.concatenate([of_begins, of_ends])
        return float(found.min()), float(found.max())

    def coarse(self, step_s: float) -> "RateOverTime":
        """The same bits at multiples of `step_s`, with a constant rate between them; itself, if it
        has no more pieces than that."""
        steps = max(1, math.ceil(self.period_s / step_s))
        if len(self.instants) <= steps + 1:
            return self
        grid = np.minimum(np.arange(steps + 1) * step_s, self.period_s)
        if grid[-2] >= grid[-1]:
            grid = grid[:-1]
        return RateOverTime(grid, np.interp(grid, self.instants, self.bits))

    def changed(self, share: float, most_bps: float, stalled_s_a_bit: float) -> "RateOverTime":
        """A share of it, at most `most_bps`, with a pause of `stalled_s_a_bit` after every bit."""
        bps = np.minimum(share * self._rates(), most_bps)
        return RateOverTime.of_pieces(np.diff(self.instants), bps / (1 + bps * stalled_s_a_bit))

    def _rates(self) -> FloatArray:
        return np.asarray(np.diff(self.bits) / np.diff(self.instants))

    def _totals(self, instants: FloatArray) -> FloatArray:
        """`total` of many instants."""
        loops = np.floor(instants / self.period_s)
        within = np.interp(instants - loops * self.period_s, self.instants, self.bits)
        return np.asarray(loops * self._loop_bits + within)

    def _instants_of(self, totals: FloatArray) -> FloatArray:
        """`instant` of many totals, also of those before its beginning."""
        loops = np.ceil(totals / self._loop_bits) - 1
        targets = totals - loops * self._loop_bits
        slack = _SLACK_BITS + _ULPS * np.abs(totals)
        places = np.searchsorted(self.bits, np.maximum(targets - slack, 0.0), side="left")
        places = np.clip(places, 1, len(self.bits) - 1)
        before, after = self.bits[places - 1], self.bits[places]
        share = np.clip((targets - before) / (after - before), 0.0, 1.0)
        begin, end = self.instants[places - 1], self.instants[places]
        return np.asarray(loops * self.period_s + begin + (end - begin) * share)


def _keep(values: FloatArray, chosen: BoolArray, out: FloatArray) -> None:
    """Write the chosen values to `out`, part by part."""
    place = 0
    for first in range(0, len(values), _CHUNK):
        part = slice(first, first + _CHUNK)
        kept = values[part][chosen[part]]
        out[place : place + len(kept)] = kept
        place += len(kept)
