"""The congestion window of a connection in slow start.

A sender begins with a small window, and each byte that is acknowledged makes it larger by a byte,
so that it doubles in each round trip (RFC 5681, section 3.1). If it has sent nothing for longer
than the retransmission time-out, it begins anew (section 4.1). A window that has become larger than
what the link can hold no longer matters.
"""

import math
from collections import deque
from typing import NamedTuple

from muster.emulator.gateway.loss import PACKET_BYTES, least_timeout_s

_PARTS = 16
"""A window leaves in at least so many pieces, because only whole pieces are acknowledged."""


class SlowStart(NamedTuple):
    """How connections of a link begin: with a window, in bytes, and a round trip, in seconds."""

    window: float
    rtt_s: float


class CongestionWindow:
    """The congestion window of one direction of a connection.

    Args:
        enough: bytes that the link can hold.
    """

    __slots__ = ("_enough", "_last", "_start", "_under_way", "_window")

    def __init__(self, start: SlowStart, enough: float) -> None:
        self._start, self._enough = start, enough
        self._window, self._last = start.window, -math.inf
        # (acknowledged at, bytes), in order.
        self._under_way: deque[tuple[float, int]] = deque()

    def room(self, instant: float) -> float:
        """Bytes that may leave in one piece at an instant."""
        window, under_way = self._at(instant)
        if window >= self._enough:
            return math.inf
        return min(window - under_way, max(PACKET_BYTES, window / _PARTS))

    def opens_at(self) -> float:
        """The earliest instant at which a byte may leave."""
        if self._window >= self._enough:
            return -math.inf
        room, at = self._window - sum(nbytes for _, nbytes in self._under_way), -math.inf
        for acknowledged, nbytes in self._under_way:
            if room >= 1:
                break
            room, at = room + 2 * nbytes, acknowledged
        return at

    def sent(self, nbytes: int, start: float, left: float) -> None:
        """Note that `nbytes` began to leave at `start` and have left at `left`."""
        self._window, _ = self._at(start)
        while self._under_way and self._under_way[0][0] <= start:
            self._under_way.popleft()
        self._last = left
        if self._window < self._enough:
            self._under_way.append((left + self._start.rtt_s, nbytes))
        else:
            self._under_way.clear()

    def _at(self, instant: float) -> tuple[float, int]:
        """The window and the bytes under way at an instant, in bytes."""
        if instant - self._last > least_timeout_s(self._start.rtt_s):
            return self._start.window, 0
        acknowledged = sum(nbytes for at, nbytes in self._under_way if at <= instant)
        under_way = sum(nbytes for _, nbytes in self._under_way) - acknowledged
        return self._window + acknowledged, under_way
