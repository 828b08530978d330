"""Checks of the instants and the rates of recordings, which their readers share."""

from pathlib import Path

import numpy as np

from muster.common.recorded_lines import epoch_of, line_number, lines_of
from muster.common.seeds import FloatArray

MOST_BPS = 1e12
"""The fastest link. A faster recording has another unit."""

LONGEST_S = 1e9
"""The longest recording, some thirty years."""

_LEAST_MS = 1e11
"""Seconds since 1970 are fine: the first instant is subtracted."""


def require_seconds(path: Path, content: bytes, seconds: FloatArray, first: int = 0) -> None:
    """Check that instants can be seconds, also since 1970.

    Args:
        first: the row of `seconds[0]` in the file, without blanks and comments.

    Raises:
        ValueError: they cannot.
    """
    if (reason := epoch_unit(float(seconds[0]))) is not None:
        number = line_number(content, first)
        raise ValueError(
            f"{path}, line {number}: expected seconds, found {seconds[0]:.0f}, {reason}"
        )


def epoch_unit(stamp: float) -> str | None:
    """Why an instant cannot be in seconds, and the conversion; None: it can."""
    return epoch_of(stamp, _LEAST_MS)


def require_ascending(path: Path, content: bytes, seconds: FloatArray) -> None:
    """Check that there are at least two instants, each later than the one before.

    Raises:
        ValueError: they are not.
    """
    if len(seconds) < 2:
        raise ValueError(f"{path} has a single line; expected at least two, to know a duration")
    steps = np.diff(seconds)
    if (wrong := np.flatnonzero(steps <= 0)).size:
        place = int(wrong[0])
        before, now = seconds[place], seconds[place + 1]
        what = "the same instant as the line before" if now == before else "before that"
        raise ValueError(
            f"{path}, line {line_number(content, place + 1)}: expected an instant after "
            f"{before:.12g} s, found {now:.12g} s, {what}; sort the lines, and keep one for "
            f"each instant"
        )
    if seconds[-1] - seconds[0] > LONGEST_S:
        raise ValueError(
            f"{path} lasts {seconds[-1] - seconds[0]:.3g} s; expected seconds, and at most "
            f"{LONGEST_S:g} of them"
        )


def require_rates(path: Path, content: bytes, rates: FloatArray, unit: str) -> None:
    """Check that rates are not negative, and that links can be so fast.

    Args:
        unit: the unit of the rates.

    Raises:
        ValueError: they are, or cannot.
    """
    most = MOST_BPS / BPS_OF[unit]
    if (wrong := np.flatnonzero(~((rates >= 0) & (rates <= most)))).size:
        place = int(wrong[0])
        text = next(line.text for n, line in enumerate(lines_of(content)) if n == place)
        raise ValueError(
            f"{path}, line {line_number(content, place)}: expected a rate from 0 to {most:g} "
            f"{unit}, found {rates[place]:g} in {text[:40]!r}; if its unit is another, convert it"
        )


BPS_OF = {"Gbit/s": 1e9, "Mbit/s": 1e6, "kbit/s": 1e3, "bit/s": 1.0,
          "MB/s": 8e6, "kB/s": 8e3, "B/s": 8.0}  # fmt: skip
"""Bits per second of the units of rates."""
