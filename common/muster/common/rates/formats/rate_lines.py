"""A rate in each line, one line a second: NYU-METS and other outputs of iPerf.

A line may name its unit, as "3.97,Mbits/sec". Without one it is Mbit/s (Mei et al., Realtime mobile
bandwidth prediction using LSTM neural network and Bayesian fusion, Computer Networks 2020).
"""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from muster.common.rates.over_time import RateOverTime
from muster.common.rates.recording import Recording
from muster.common.rates.stamps import BPS_OF, require_rates
from muster.common.recorded_lines import lines_of, mistake, number_of, table_of
from muster.common.seeds import FloatArray

_UNITS = {f"{short}bits/sec": f"{short.replace('K', 'k')}bit/s" for short in ("G", "M", "K", "")}
_DECIMAL = re.compile(r"[-+]?[0-9]*\.[0-9]*(e[-+]?[0-9]+)?")
_LINE = re.compile(r"(?P<number>[^\s,]+)[\s,]+(?P<unit>[GMK]?bits/sec)")


def matches(lines: Sequence[str]) -> bool:
    return bool(_LINE.fullmatch(lines[0]) or _DECIMAL.fullmatch(lines[0]))


def read(path: Path, content: bytes) -> Recording:
    found = table_of(content)
    if found is not None and len(found) and found.shape[1] == 1:
        mbps = np.ascontiguousarray(found[:, 0])
    else:
        mbps = _with_units(path, content)
    require_rates(path, content, mbps, "Mbit/s")
    rate = RateOverTime.of_pieces(np.ones(len(mbps)), 1e6 * mbps)
    return Recording.of(rate, "Mbit/s", ["a line is a second"])


def _with_units(path: Path, content: bytes) -> FloatArray:
    found = []
    for number, text in lines_of(content):
        matched = _LINE.fullmatch(text)
        cell, unit = (matched["number"], _UNITS[matched["unit"]]) if matched else (text, "Mbit/s")
        if not matched and re.search(r"[A-Za-z]", text) and text.lower() not in ("nan", "inf"):
            raise mistake(path, number, "a rate, and Mbits/sec, Kbits/sec or no unit", text)
        rate = number_of(path, number, cell, "a rate in Mbit/s")
        found.append(rate * BPS_OF[unit] / 1e6)
    return np.array(found)
