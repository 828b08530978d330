"""Traces in Mahimahi's format: the milliseconds at which 1500 bytes may pass."""

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

_OPPORTUNITY_BYTES = 1500

_LARGEST_MS = 10**12
"""Bound of a line. A trace of 30 years is no trace, and larger numbers would not be exact."""


class Trace:
    """A recorded link: bytes leave only in the milliseconds that its lines name, again and again.

    Each line lets 1500 bytes leave, evenly over the millisecond that ends there. So the totals at
    whole milliseconds are those of Mahimahi, but a small packet does not use up a whole
    opportunity.

    All devices share one trace. It has 8 bytes for each line, and everything is found in it by
    binary search: the place of a line is the number of opportunities before it.

    Args:
        lines: milliseconds, ascending, the last above 0.

    Attributes:
        period_s: seconds after which it begins again.
        mean: bytes per second in the long run.
        peak: most bytes in any second.
        gap_s: the longest time without an opportunity.
    """

    def __init__(self, lines: Iterable[int]) -> None:
        # The bytes of line 0 leave in the first millisecond, because there is none before it.
        self._lines = array("q", (max(1, line) for line in lines))
        self._period = self._lines[-1]
        self._loop_bytes = _OPPORTUNITY_BYTES * len(self._lines)
        self.period_s = self._period / 1000
        self.mean = self._loop_bytes / self.period_s
        self.peak = max(self.mean, float(_OPPORTUNITY_BYTES * self._most_in_a_second()))
        around = self._lines[0] + self._period - self._lines[-1]
        self.gap_s = max(around, max((b - a for a, b in pairwise(self._lines)), default=0)) / 1000

    def _most_in_a_second(self) -> int:
        first, most = 0, 0
        for place, line in enumerate(self._lines, start=1):
            while self._lines[first] <= line - 1000:
                first += 1
            most = max(most, place - first)
        return most

    def total(self, instant: float) -> float:
        """Bytes that could have left `instant` seconds after its beginning."""
        loops, within = divmod(1000 * instant, self._period)
        millisecond = int(within)
        before = bisect_right(self._lines, millisecond)
        now = bisect_right(self._lines, millisecond + 1) - before
        passed = before + now * (within - millisecond)
        return loops * self._loop_bytes + _OPPORTUNITY_BYTES * passed

    def instant(self, total: float) -> float:
        """The first instant at which `total` > 0 bytes could have left."""
        loops, target = divmod(total, self._loop_bytes)
        # A sum of floats may slightly exceed a whole opportunity, and the next may be far away.
        place = math.ceil(target / _OPPORTUNITY_BYTES - 1e-7) - 1
        if place < 0:
            loops, place, target = loops - 1, len(self._lines) - 1, self._loop_bytes
        line = self._lines[place]
        before, after = bisect_left(self._lines, line), bisect_right(self._lines, line)
        part = (target - _OPPORTUNITY_BYTES * before) / (_OPPORTUNITY_BYTES * (after - before))
        return (loops * self._period + line - 1 + min(1.0, max(0.0, part))) / 1000


def read_mahimahi(path: Path) -> Trace:
    """Read a trace in Mahimahi's format. All callers share one trace until its file changes.

    Raises:
        ValueError: there is no such file, or it is not a trace. The message names the line.
    """
    try:
        status = path.stat()
        return _read(path, status.st_mtime_ns)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None


@lru_cache(maxsize=32)
def _read(path: Path, changed_ns: int) -> Trace:
    lines = array("q")
    before = 0
    for number, text in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            line = int(text)
        except ValueError:
            shown = text[:40].decode(errors="replace")
            raise ValueError(
                f"{path}, line {number}: expected a whole number of milliseconds, found {shown!r}"
            ) from None
        if not before <= line <= _LARGEST_MS:
            limit = "less than the line before" if line < before else f"above {_LARGEST_MS:,}"
            raise ValueError(
                f"{path}, line {number}: {line} is {limit}; expected ascending milliseconds from 0"
            )
        lines.append(line)
        before = line
    if not lines:
        raise ValueError(f"{path} is empty; expected a line for each 1500 bytes that may pass")
    if not lines[-1]:
        raise ValueError(
            f"{path} ends at millisecond 0; expected the duration of the trace in its last line"
        )
    return Trace(lines)
