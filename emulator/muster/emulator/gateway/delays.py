"""Measures the delays of a link: how long bytes are on the way after they left its rate."""

import math
from collections import deque

_LAST = 64
"""Number of pieces over which the upper quartile is taken."""


class DelayMeter:
    """The delays of the pieces of bytes that were sent since the meter was made."""

    __slots__ = ("_last_s", "_least_s", "_pieces")

    def __init__(self) -> None:
        self._pieces, self._least_s = 0, math.inf
        self._last_s: deque[float] = deque(maxlen=_LAST)

    def add(self, delay_s: float) -> None:
        """Count a piece that was handed to its receiver so long after it left."""
        self._pieces += 1
        self._least_s = min(self._least_s, delay_s)
        self._last_s.append(delay_s)

    def stats(self) -> dict[str, float | None]:
        """The number of pieces, their least delay, and the upper quartile of the last 64 of them,
        in seconds; None: there were no pieces. A gateway on a busy machine is late now and then, so
        a mean would say more of the machine than of the link."""
        if not self._pieces:
            return {"pieces": 0, "least_s": None, "quartile_s": None}
        quartile_s = sorted(self._last_s)[3 * len(self._last_s) // 4]
        return {"pieces": self._pieces, "least_s": self._least_s, "quartile_s": quartile_s}
