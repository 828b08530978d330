"""Simulated fleets of rational devices, by name: the sections of their scenarios."""

from collections.abc import Mapping
from typing import Any

_TASK = {
    "name": "digits",
    "validation_ratio": 0.3,
    "partition": {"kind": "dirichlet", "alpha": 0.3},
}
_LEAVING: dict[str, Any] = {"participation": {"kind": "rational"}}
_FITTED = {"test": "fitted", "threshold": "weight"}

RATIONAL: Mapping[str, Mapping[str, Any]] = {
    "rational": {
        "task": _TASK,
        "server": {"rounds": 5},
        "groups": [
            {"name": "pack", "count": 2, "devices_per_process": 2, **_LEAVING},
            {"name": "alone", "count": 2, **_LEAVING},
            {"name": "compliant", "count": 1},
        ],
    },
    "rational-large": {  # a model that does not fit into a message of Attend
        "task": {**_TASK, "model": "mlp", "hidden": [230]},
        "server": {"rounds": 3, "transfers": 1},
        "groups": [{"name": "dev", "count": 3, **_LEAVING}],
    },
    "rational-phones": {  # batteries, devices that are away, and accidents
        "clock": {"round_s": 3600, "starts_at_h": 20},
        "task": _TASK,
        "server": {"rounds": 5, "goal": 2, "aggregator": {"kind": "feduca", "strategies": 2}},
        "groups": [
            {
                "name": "phone",
                "count": 3,
                "devices_per_process": 2,
                "device": {"profile": "phone"},
                "availability": {"kind": "bernoulli", "probability": 0.8},
                "covariates": {"x": {"lately": "recent"}},
                "participation": {
                    "kind": "rational",
                    "require": ["unmetered"],
                    "drop_out": 0.2,
                    "utility": {"tolerance": 0.1, "cost_per_mb": 1.0},
                },
            }
        ],
    },
    "feduca": {
        "task": _TASK,
        "server": {"rounds": 4, "aggregator": {"kind": "feduca", "strategies": 2}},
        "groups": [
            {
                "name": "dev",
                "count": 3,
                "participation": {"kind": "rational", "utility": _FITTED},
            }
        ],
    },
    "max-participation": {
        "task": _TASK,
        "server": {
            "rounds": 4,
            "aggregator": {
                "kind": "max-participation",
                "order": "solve-first",
                "retention": "model",
            },
        },
        "groups": [
            {
                "name": "pack",
                "count": 2,
                "devices_per_process": 2,
                "participation": {"kind": "rational", "utility": _FITTED},
            },
            {"name": "alone", "count": 1, **_LEAVING},
        ],
    },
    "rational-fedavg": {  # models in chunks; nobody accepts after the first round
        "task": {**_TASK, "model": "mlp", "hidden": [230]},
        "server": {
            "rounds": 3,
            "transfers": 1,
            "aggregator": {"kind": "rational-fedavg", "retention": "model"},
        },
        "groups": [
            {
                "name": "dev",
                "count": 3,
                "participation": {"kind": "rational", "utility": {"margin": 100}},
            }
        ],
    },
    "aaggff-s": {
        "task": _TASK,
        "server": {"rounds": 4, "aggregator": "aaggff-s"},
        "groups": [{"name": "dev", "count": 3, "devices_per_process": 2, **_LEAVING}],
    },
}
