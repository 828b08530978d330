"""Estimates the remaining time of a study from the runs that are done, without reading a clock."""

from collections.abc import Iterable


class Pace:
    """The remaining seconds, corrected by the measured pace.

    Args:
        expected: expected seconds of every run that is still to be done.
        at_once: number of runs at the same time.
    """

    def __init__(self, expected: Iterable[float], at_once: int = 1) -> None:
        self._left = list(expected)
        self._at_once = at_once
        self._done = self._took = 0.0

    def done(self, expected_s: float, took_s: float) -> None:
        """Record that a run that was expected to take `expected_s` took `took_s`."""
        self._left.remove(expected_s)
        self._done += expected_s
        self._took += took_s

    @property
    def left_s(self) -> float:
        """Seconds until the last run has ended, at the pace so far."""
        pace = self._took / self._done if self._done > 0 else 1.0
        return pace * sum(self._left) / self._at_once
