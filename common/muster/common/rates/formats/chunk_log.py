"""Oboe's traces: two lines "milliseconds kbit/s" for each chunk, at its begin and its end.

Between two chunks, the rate is the mean of both (Akhtar et al., Oboe: Auto-tuning video ABR
algorithms to network conditions, SIGCOMM 2018; its README says to interpolate).
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from muster.common.rates.over_time import RateOverTime
from muster.common.rates.recording import Recording
from muster.common.rates.stamps import require_ascending, require_rates
from muster.common.recorded_lines import columns_of, line_number

_PAIRS = 2


def matches(lines: Sequence[str]) -> bool:
    rows = [line.split() for line in lines[: len(lines) // 2 * 2]]
    if len(rows) < 2 * _PAIRS or any(len(row) != 2 for row in rows):
        return False
    return all(a[1] == b[1] for a, b in zip(rows[::2], rows[1::2], strict=True)) and all(
        row[0].removesuffix(".0").isdigit() for row in rows
    )


def read(path: Path, content: bytes) -> Recording:
    milliseconds, kbps = columns_of(path, content, None, ["milliseconds", "a rate in kbit/s"])
    require_ascending(path, content, milliseconds / 1000)
    require_rates(path, content, kbps, "kbit/s")
    pairs = len(kbps) // 2 * 2
    if len(kbps) % 2 or (kbps[:pairs:2] != kbps[1:pairs:2]).any():
        wrong = np.flatnonzero(kbps[:pairs:2] != kbps[1:pairs:2])
        place = 2 * int(wrong[0]) + 1 if wrong.size else len(kbps) - 1
        raise ValueError(
            f"{path}, line {line_number(content, place)}: expected two lines with the same rate "
            f"for each chunk, found {kbps[place]:g} kbit/s in one only"
        )
    between = (kbps[1:-1:2] + kbps[2::2]) / 2
    rates = np.empty(len(kbps) - 1)
    rates[::2], rates[1::2] = kbps[::2], between
    rate = RateOverTime.of_pieces(np.diff(milliseconds) / 1000, 1e3 * rates)
    return Recording.of(rate, "kbit/s")
