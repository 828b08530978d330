"""Warnings that strangers can cause at any rate, so that a log does not fill the disk."""

import logging

from muster.common.clock import Clock

_EVERY_S = 10.0


class SparseLog:
    """Writes at most one warning in ten seconds, and counts those that it leaves out.

    Args:
        log: where the warnings are written.
    """

    def __init__(self, log: logging.Logger, clock: Clock) -> None:
        self._log, self._clock = log, clock
        self._next = clock.monotonic()
        self._left_out = 0

    def warning(self, text: str) -> None:
        """Write a warning, with the number of those left out before it; or leave it out."""
        now = self._clock.monotonic()
        if now < self._next:
            self._left_out += 1
            return
        more = f" ({self._left_out} warnings before it are left out)" if self._left_out else ""
        self._log.warning("%s%s", text, more)
        self._next, self._left_out = now + _EVERY_S, 0
