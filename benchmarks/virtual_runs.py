"""CPU seconds of a run in virtual time: 20 devices, 50 rounds on digits, in one process.

python benchmarks/virtual_runs.py [RUNS]

The first run of every kind is not counted: it imports. Runs a minute on two cores are 120 divided
by the CPU seconds of a run, because runs share nothing.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

from muster.common.config import validate
from muster.common.garbage import keep_what_is_left
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.whole_run import simulate_run

KINDS = {
    "a process for each device": (1, 1),
    "devices in a pack": (20, 1),
    "and trained together": (20, 20),
}


def scenario(seed: int, packed: int, together: int) -> Scenario:
    values = {
        "name": "virtual",
        "seed": seed,
        "task": {"name": "digits", "partition": {"kind": "dirichlet", "alpha": 0.5}},
        "training": {"learning_rate": 0.1, "local_epochs": 1, "together": together},
        "server": {"rounds": 50, "evaluate_every": 10},
        "groups": [
            {
                "name": "phones",
                "count": 20,
                "devices_per_process": packed,
                "availability": {"kind": "bernoulli", "probability": 0.8},
            }
        ],
    }
    return validate(Scenario, values, "the benchmark")


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        for name, (packed, together) in KINDS.items():
            took = []
            for seed in range(runs + 1):
                began = time.process_time()
                simulate_run(scenario(seed, packed, together), Path(folder) / "run")
                took.append(time.process_time() - began)
                keep_what_is_left()
            median = statistics.median(took[1:])
            print(f"{name:28} {median:.2f} CPU s a run, {120 / median:.0f} a minute on two cores")


if __name__ == "__main__":
    main()
