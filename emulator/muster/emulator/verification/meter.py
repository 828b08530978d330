"""Counts bytes over time at their receiver."""

import math
from array import array
from bisect import bisect_left, bisect_right
from itertools import pairwise


class RateMeter:
    """Counts the bytes that one receiver got, with the instants at which they arrived.

    Attributes:
        broken: whether the connection ended before its measurement.
    """

    def __init__(self) -> None:
        self._instants = array("d")
        self._totals = array("q")
        self.received = 0
        self.broken = False

    def add(self, nbytes: int, at: float) -> None:
        """Count bytes that arrived at the instant `at`, which must not decrease between calls."""
        self.received += nbytes
        self._instants.append(at)
        self._totals.append(self.received)

    @property
    def last(self) -> float:
        """The instant at which bytes last arrived; minus infinity: none have arrived."""
        return self._instants[-1] if self._instants else -math.inf

    def received_by(self, instant: float) -> float:
        """Bytes received by an instant. Interpolates between two arrivals, so that a slice more or
        less at the ends of an interval does not matter."""
        after = bisect_right(self._instants, instant)
        if after == 0:
            return 0.0
        if after == len(self._instants):
            return float(self.received)
        earlier, later = self._instants[after - 1], self._instants[after]
        share = (instant - earlier) / (later - earlier)
        before = self._totals[after - 1]
        return before + share * (self._totals[after] - before)

    def reached(self, nbytes: float) -> float | None:
        """Seconds from the first arrival until so many bytes had arrived; None: they have not."""
        place = bisect_left(self._totals, nbytes)
        return None if place == len(self._totals) else self._instants[place] - self._instants[0]

    def silence_s(self, since: float, until: float) -> float:
        """The longest time between two arrivals that follow each other, of which the first or the
        second lies between two instants."""
        first = max(0, bisect_right(self._instants, since) - 1)
        last = min(len(self._instants) - 1, bisect_right(self._instants, until))
        near = self._instants[first : last + 1]
        return max((later - earlier for earlier, later in pairwise(near)), default=0.0)
