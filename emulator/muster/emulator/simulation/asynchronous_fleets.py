"""Simulated fleets whose updates outlive their rounds, and whose course depends on what a server
must know again after a restart."""

from collections.abc import Mapping
from typing import Any

FLEETS: Mapping[str, Mapping[str, Any]] = {
    # Devices that are away for many steps, and say so when they are called.
    "away": {
        "server": {"rounds": 8, "mode": {"kind": "buffered", "k": 2, "concurrency": 3}},
        "clock": {"round_s": 1.0},
        "groups": [
            {
                "name": "dev",
                "count": 6,
                "device": {"examples_per_s": {"kind": "log-normal", "median": 2, "sigma": 0.5}},
                "availability": {"kind": "markov", "mean_up_s": 6, "mean_down_s": 6},
            }
        ],
    },
}
"""The sections of each fleet's scenario, by name."""
