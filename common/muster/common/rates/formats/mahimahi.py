"""Mahimahi's traces: each line is the millisecond at which 1500 bytes may pass.

Each line lets 1500 bytes pass evenly over the millisecond that ends there. So the totals at whole
milliseconds are those of Mahimahi, but a small packet does not use up a whole opportunity.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from muster.common.rates.over_time import RateOverTime
from muster.common.rates.recording import Recording
from muster.common.recorded_lines import lines_of, mistake, table_of
from muster.common.seeds import IntArray

_OPPORTUNITY_BITS = 8 * 1500

_LARGEST_MS = 10**12
"""Bound of a line. A trace of 30 years is no trace, and larger numbers would not be exact."""


def matches(lines: Sequence[str]) -> bool:
    return lines[0].lstrip("-").isdigit()


def read(path: Path, content: bytes) -> Recording:
    return Recording.of(rate_of(*totals_of(_lines(path, content))), "opportunities of 1500 bytes")


def _lines(path: Path, content: bytes) -> IntArray:
    """The lines, ascending, the last above 0."""
    found = _fast(content)
    if found is None:
        found = _slow(path, content)
    if not found[-1]:
        raise ValueError(
            f"{path} ends at millisecond 0; expected the duration of the trace in its last line"
        )
    return found


def totals_of(milliseconds: IntArray) -> tuple[IntArray, IntArray]:
    """The milliseconds at whose end bytes have passed, from 1, and how many opportunities have by
    then."""
    last = np.append(milliseconds[1:] != milliseconds[:-1], True)
    last[:-1] &= milliseconds[1:] > 1  # the bytes of line 0 pass in the first millisecond, too
    ends = milliseconds[last]
    np.maximum(ends, 1, out=ends)
    passed = np.flatnonzero(last).astype(ends.dtype)
    passed += 1
    return ends, passed


def rate_of(ends: IntArray, passed: IntArray) -> RateOverTime:
    """The rate of a trace from its totals."""
    # Before some milliseconds, nothing passes for a while. A trace may have ten million lines, so
    # all this is done in place.
    begins = np.flatnonzero(np.diff(ends, prepend=np.zeros(1, ends.dtype)) > 1)
    is_end = np.ones(len(ends) + len(begins), dtype=np.bool_)
    is_end[begins + np.arange(len(begins))] = False
    rows = np.zeros((2, 1 + len(is_end)))
    instants, bits = rows[:, 1:]
    instants[is_end], instants[~is_end] = ends, ends[begins] - 1
    before = passed[begins - 1]
    before[begins == 0] = 0
    bits[is_end], bits[~is_end] = passed, before
    instants /= 1000
    bits *= _OPPORTUNITY_BITS
    return RateOverTime(*rows)


def _fast(content: bytes) -> IntArray | None:
    """The lines if all are as they should be. 32 bits are enough for 24 days."""
    found = table_of(content, dtype=np.int32)
    if found is None or found.shape[1] != 1 or not len(found):
        return None
    lines = found[:, 0]
    return lines if lines[0] >= 0 and (lines[1:] >= lines[:-1]).all() else None


def _slow(path: Path, content: bytes) -> IntArray:
    """The lines, one by one; refuses the first that is wrong."""
    found: list[int] = []
    before = 0
    for number, text in lines_of(content):
        try:
            line = int(text)
        except ValueError:
            raise mistake(path, number, "a whole number of milliseconds", text) from None
        if not before <= line <= _LARGEST_MS:
            limit = "less than the line before" if line < before else f"above {_LARGEST_MS:,}"
            raise ValueError(
                f"{path}, line {number}: {line} is {limit}; expected ascending milliseconds from 0"
            )
        found.append(line)
        before = line
    return np.array(found, dtype=np.int64)
