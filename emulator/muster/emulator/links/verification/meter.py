"""Bytes over time, as their receiver saw them."""

import math
from array import array
from bisect import bisect_right


class RateMeter:
    """What one receiver has got, with the instants at which it came.

    Attributes:
        broken: the connection ended before its measurement did.
    """

    def __init__(self) -> None:
        self._instants = array("d")
        self._totals = array("q")
        self.received = 0
        self.broken = False

    def add(self, nbytes: int, at: float) -> None:
        """Bytes have come; `at` never goes back."""
        self.received += nbytes
        self._instants.append(at)
        self._totals.append(self.received)

    @property
    def last(self) -> float:
        """When bytes came last; minus infinity: none have."""
        return self._instants[-1] if self._instants else -math.inf

    def received_by(self, instant: float) -> float:
        """Bytes received by an instant; between two arrivals evenly, so that a slice more or less
        does not count."""
        after = bisect_right(self._instants, instant)
        if after == 0:
            return 0.0
        if after == len(self._instants):
            return float(self.received)
        earlier, later = self._instants[after - 1], self._instants[after]
        share = (instant - earlier) / (later - earlier)
        before = self._totals[after - 1]
        return before + share * (self._totals[after] - before)
