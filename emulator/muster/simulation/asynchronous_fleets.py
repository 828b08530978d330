"""Simulated fleets whose updates outlive their rounds, and whose course depends on what a server
must know again after a restart."""

from collections.abc import Mapping
from typing import Any

_VALLEY = {
    "name": "valley",
    "count": 4,
    "device": {"examples_per_s": {"kind": "log-normal", "median": 4, "sigma": 0.5}},
    "availability": {"kind": "bernoulli", "probability": 0.8},
    "link": {"rtt": "100 ms", "up": "3 kbit/s"},
    "shared_link": {"up": "2 kbit/s", "down": "4 kbit/s"},
}
"""Devices whose transfers, of 2 kbit, make one another slower."""

_SHARED = {
    "task": {"name": "linear", "dimension": 60, "examples_per_client": 8},
    "training": {"learning_rate": 1e-3, "local_steps": 1, "batch_size": 4},
    "clock": {"round_s": 2.0},
    "groups": [
        _VALLEY,
        {"name": "town", "count": 2, "device": {"examples_per_s": 2}, "link": {"rtt": "20 ms"}},
    ],
}

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
    # Rounds that end at every finish, with devices that decline, drop out, and finish together.
    "finish": {
        "server": {
            "rounds": 6,
            "deadline_s": 8.0,
            "mode": {"kind": "buffered", "k": 3, "concurrency": 4, "calls_at": "finish"},
        },
        "clock": {"round_s": 2.0},
        "groups": [
            {"name": "alike", "count": 4, "device": {"examples_per_s": 4}},
            {
                "name": "dev",
                "count": 4,
                "device": {"examples_per_s": {"kind": "log-normal", "median": 1, "sigma": 0.5}},
                "availability": {"kind": "bernoulli", "probability": 0.5},
                "participation": {"drop_out": 0.2},
            },
        ],
    },
    "shared-finish": {
        **_SHARED,
        "server": {
            "rounds": 6,
            "mode": {
                "kind": "buffered",
                "k": 2,
                "concurrency": 4,
                "max_staleness": 3,
                "calls_at": "finish",
            },
        },
    },
    "shared-buffered": {
        **_SHARED,
        "server": {
            "rounds": 10,
            "deadline_s": 5.0,
            "mode": {"kind": "buffered", "k": 2, "concurrency": 5, "max_staleness": 3},
        },
    },
    "shared-rounds": {
        **_SHARED,
        "server": {
            "rounds": 8,
            "deadline_s": 1.5,
            "mode": {"kind": "opportunistic", "max_staleness": 2},
        },
    },
}
"""The sections of each fleet's scenario, by name."""
