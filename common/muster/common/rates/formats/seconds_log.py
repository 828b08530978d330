"""Logs of "seconds, Mbit/s", as Pensieve, its HSDPA and FCC traces, and Puffer use them.

As in Pensieve's simulator, a line has the rate since the line before, and the first line only
begins the recording (Mao, Netravali, Alizadeh, Neural adaptive video streaming with Pensieve,
SIGCOMM 2017).
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from muster.common.rates.over_time import RateOverTime
from muster.common.rates.recording import Recording
from muster.common.rates.stamps import require_ascending, require_rates, require_seconds
from muster.common.recorded_lines import columns_of

_EXPECTED = ["seconds", "a rate in Mbit/s"]


def separator_of(line: str) -> str | None:
    """What separates the cells of a line; None: white space."""
    return "," if "," in line else None


def matches(lines: Sequence[str]) -> bool:
    cells = lines[0].split(separator_of(lines[0]))
    return len(cells) == 2 and all(cell.strip()[:1] in "-+.0123456789nN" for cell in cells)


def read(path: Path, content: bytes) -> Recording:
    separator = "," if b"," in content[:4096] else None
    seconds, mbps = columns_of(path, content, separator, _EXPECTED)
    require_seconds(path, content, seconds)
    require_ascending(path, content, seconds)
    require_rates(path, content, mbps, "Mbit/s")
    return Recording.of(RateOverTime.of_pieces(np.diff(seconds), 1e6 * mbps[1:]), "Mbit/s")
