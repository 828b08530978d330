"""What secure aggregation adds to a round over real sockets: wall time, and bytes that a device
sends. Devices return the model unchanged. Sums are exact, or on a grid of 4 bytes for each entry.

python benchmarks/secure_sums.py                 # all cases
python benchmarks/secure_sums.py 10 10000 60     # one case: devices, parameters, rounds
python benchmarks/secure_sums.py 100 10000 2 --together 50    # with 50 devices in a process
python benchmarks/secure_sums.py --update        # processor time of one padded update
"""

import argparse
import os
import secrets
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from rounds import measure

from muster.common.exact_sum import Term
from muster.common.secure.grid import Grid, SumNoise, grid_of
from muster.common.secure.padded import padded_sum

# (devices, parameters, rounds)
CASES = [(10, 10_000, 60), (100, 10_000, 10), (10, 1_000_000, 6), (100, 1_000_000, 2)]

_WARM_UP = 3
"""Rounds that are not counted: in the first one, devices start."""

_KINDS: list[dict[str, Any] | None] = [None, {}, {"range": 1.0}]
"""No secure sums, exact ones, and sums on a grid."""

_ENTRIES = 1_000_000
_NEIGHBOURS = (9, 36)
"""Those of 10 devices, and of 100 with the usual rates."""
_REPETITIONS = 5


def rounds(cases: Sequence[tuple[int, ...]], together: int) -> None:
    """Measure whole rounds without secure sums, and with both kinds."""
    names = ("devices", "parameters", "ms without", "ms exact", "ms on a grid",
             "sends without", "sends exact", "sends on a grid")  # fmt: skip
    print(" ".join(f"{name:>15}" for name in names), flush=True)
    for devices, parameters, number in cases:
        measured = [
            measure(devices, parameters, number, secure=how, uncounted=_WARM_UP, together=together)
            for how in _KINDS
        ]
        found = [devices, parameters]
        found += [of["round_ms_median"] for of in measured]
        found += [of["bytes_up_of_device"] for of in measured]
        print(" ".join(f"{value:>15,.0f}" for value in found), flush=True)


def one_update() -> None:
    """Measure the processor time of one padded update, as each device makes it in a round."""
    grids: list[tuple[str, Grid | None]] = [("exact", None)]
    grids += [
        (f"{bits} bits, nearest", grid_of(1.0, bits, "nearest", 100, 1.0)) for bits in (53, 25, 8)
    ]
    grids.append(("8 bits, stochastic", grid_of(1.0, 8, "stochastic", 100, 1.0)))
    noise = SumNoise(norm=0.5, deviation=0.05)
    grids.append(("25 bits, noise", grid_of(1.0, 25, "nearest", 100, 1.0, noise)))
    draws = np.random.default_rng(1)
    vector = draws.normal(scale=0.1, size=_ENTRIES).astype(np.float32)
    term = Term(lambda start, stop: vector[start:stop], 0.7, float(np.max(np.abs(vector))))
    names = "entries", "neighbours", "bytes", "ms of update", "ms of pads"
    print(f"{'':>18} " + " ".join(f"{name:>13}" for name in names), flush=True)
    for (name, grid), neighbours in ((g, n) for n in _NEIGHBOURS for g in grids):
        pads = [(secrets.token_bytes(32), place % 2 == 0) for place in range(neighbours + 1)]
        times = []
        for _ in range(_REPETITIONS):
            began = time.process_time()
            total = padded_sum(_ENTRIES, grid)
            total.add_term(term, draws)
            added = time.process_time()
            total.pad(pads)
            times.append((added - began, time.process_time() - added))
        update_ms, pads_ms = (1000 * min(column) for column in zip(*times, strict=True))
        counts = _ENTRIES, neighbours, len(total.encoded())
        row = [*(f"{count:,}" for count in counts), f"{update_ms:.1f}", f"{pads_ms:.1f}"]
        print(f"{name:>18} " + " ".join(f"{value:>13}" for value in row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", nargs="*", type=int, help="devices parameters rounds")
    parser.add_argument("--together", type=int, default=1, help="devices in a process")
    parser.add_argument("--update", action="store_true", help="only one padded update")
    options = parser.parse_args()
    print(f"load average before: {os.getloadavg()[0]:.1f}, cores: {os.cpu_count()}")
    if options.update:
        one_update()
    else:
        rounds([tuple(options.case)] if options.case else CASES, options.together)


if __name__ == "__main__":
    main()
