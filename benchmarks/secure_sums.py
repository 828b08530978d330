"""What secure aggregation adds to a round over real sockets: wall time, and bytes that a device
sends. Devices return the model unchanged.

python benchmarks/secure_sums.py                 # all cases
python benchmarks/secure_sums.py 10 10000 60     # one case: devices, parameters, rounds
"""

import argparse
import os

from rounds import measure

# (devices, parameters, rounds)
CASES = [(10, 10_000, 60), (100, 10_000, 10), (10, 1_000_000, 6), (100, 1_000_000, 2)]

_WARM_UP = 3
"""Rounds that are not counted: in the first one, devices start."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", nargs="*", type=int, help="devices parameters rounds")
    case = parser.parse_args().case
    print(f"load average before: {os.getloadavg()[0]:.1f}, cores: {os.cpu_count()}")
    names = ("devices", "parameters", "ms without", "ms with", "sends without", "sends with")
    print(" ".join(f"{name:>14}" for name in names), flush=True)
    for devices, parameters, rounds in [case] if case else CASES:
        plain, secure = (
            measure(devices, parameters, rounds, secure=how, uncounted=_WARM_UP)
            for how in (False, True)
        )
        found = [devices, parameters]
        found += [of["round_ms_median"] for of in (plain, secure)]
        found += [of["bytes_up_of_device"] for of in (plain, secure)]
        print(" ".join(f"{value:>14,.0f}" for value in found), flush=True)


if __name__ == "__main__":
    main()
