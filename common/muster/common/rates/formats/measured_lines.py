"""A rate in Mbit/s and seven measurements in each line, one line a second, without a header: the
multivariate data of NYU-METS (`Multivariate_Dataset`, 2020).

The measurements are the LTE neighbours, whether the base station changed, RSSI, RSRQ, the timing
advance, the speed, and the frequency band. muster uses the rate (Mei et al., Realtime mobile
bandwidth prediction using LSTM neural network and Bayesian fusion, Computer Networks 2020).
"""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from muster.common.rates.over_time import RateOverTime
from muster.common.rates.recording import Recording
from muster.common.rates.stamps import require_rates
from muster.common.recorded_lines import columns_of, line_of_row, mistake

_EXPECTED = [
    "a rate in Mbit/s",
    "neighbours",
    "0 or 1",
    "RSSI",
    "RSRQ",
    "timing advance",
    "speed",
    "band",
]
_CHANGED = 2
"""The column that says whether the base station changed."""

_LINE = re.compile(r"[0-9.]+,[^,]+,[01](\.0*)?(,[^,]+){4},(-1|[0-9]{3,4})(\.0*)?")
"""The form of a line; the last number is a band in MHz, or -1 if none is known."""


def matches(lines: Sequence[str]) -> bool:
    return _LINE.fullmatch(lines[0]) is not None


def read(path: Path, content: bytes) -> Recording:
    columns = columns_of(path, content, ",", _EXPECTED)
    changed = columns[_CHANGED]
    if (wrong := np.flatnonzero((changed != 0) & (changed != 1))).size:
        line = line_of_row(content, int(wrong[0]))
        raise mistake(path, line.number, "0 or 1 in the third column", line.text)
    mbps = columns[0].copy()
    del columns, changed
    require_rates(path, content, mbps, "Mbit/s")
    rate = RateOverTime.of_pieces(np.ones(len(mbps)), 1e6 * mbps)
    return Recording.of(rate, "Mbit/s", ["a line is a second; its first number is the rate"])
