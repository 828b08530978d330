"""Measures the delays of a link: how long bytes are on the way after they left its rate."""

import math


class DelayMeter:
    """The delays of the pieces that were sent since the meter was made."""

    __slots__ = ("_least_s", "_pieces", "_total_s")

    def __init__(self) -> None:
        self._pieces, self._total_s, self._least_s = 0, 0.0, math.inf

    def add(self, delay_s: float) -> None:
        """Count a piece that was handed to its receiver so long after it left."""
        self._pieces += 1
        self._total_s += delay_s
        self._least_s = min(self._least_s, delay_s)

    def stats(self) -> dict[str, float | None]:
        """The number of pieces, and their least and mean delay in seconds; None: there were no
        pieces."""
        if not self._pieces:
            return {"pieces": 0, "least_s": None, "mean_s": None}
        mean_s = self._total_s / self._pieces
        return {"pieces": self._pieces, "least_s": self._least_s, "mean_s": mean_s}
