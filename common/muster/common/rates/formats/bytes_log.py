"""The raw logs of the HSDPA data set: six numbers in each line.

They are the seconds since 1970, the milliseconds since the begin, latitude, longitude, the bytes
that were received since the line before, and the milliseconds since it (Riiser, Vigmostad,
Griwodz, Halvorsen, Commute path bandwidth traces from 3G networks, MMSys 2013).
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from muster.common.rates.over_time import RateOverTime
from muster.common.rates.recording import Recording
from muster.common.rates.stamps import require_rates
from muster.common.recorded_lines import columns_of, line_number

_EXPECTED = ["seconds since 1970", "milliseconds", "latitude", "longitude", "bytes", "milliseconds"]


def matches(lines: Sequence[str]) -> bool:
    cells = lines[0].split()
    return len(cells) == len(_EXPECTED) and cells[0].isdigit() and cells[4].isdigit()


def read(path: Path, content: bytes) -> Recording:
    seconds, _, _, _, passed, milliseconds = columns_of(path, content, None, _EXPECTED)
    if (wrong := np.flatnonzero(np.diff(seconds, prepend=0.0) < 0)).size:
        place = int(wrong[0])
        raise ValueError(
            f"{path}, line {line_number(content, place)}: expected seconds since 1970 that are not "
            f"before those of the line before, found {seconds[place]:.0f}; sort the lines"
        )
    if (wrong := np.flatnonzero(milliseconds <= 0)).size:
        place = int(wrong[0])
        raise ValueError(
            f"{path}, line {line_number(content, place)}: expected above 0 milliseconds since the "
            f"line before, found {milliseconds[place]:g}"
        )
    bps = 8 * passed / (milliseconds / 1000)
    require_rates(path, content, bps, "bit/s")
    return Recording.of(RateOverTime.of_pieces(milliseconds / 1000, bps), "bytes and milliseconds")
