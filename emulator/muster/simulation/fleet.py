"""The simulated fleets, by name: those that tests need, and those that are drawn."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from muster.common.config import validate
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.asynchronous_fleets import FLEETS
from muster.simulation.drawn_fleets import LARGE, drawn_fleet


def _scenario(name: str, **sections: Any) -> Scenario:
    values: dict[str, Any] = {
        "name": name,
        "seed": 3,
        "task": {"name": "linear", "dimension": 3, "heterogeneity": 1.0, "examples_per_client": 8},
        "training": {"learning_rate": 0.05, "local_steps": 1, "batch_size": 4},
        "groups": [{"name": "dev", "count": 2}],
    }
    return validate(Scenario, {**values, **sections}, name)


_LARGE_TASK = {"name": "linear", "dimension": LARGE, "examples_per_client": 4}
_LARGE_TRAINING = {"learning_rate": 1e-6, "local_steps": 1, "batch_size": 4}
_FEEDBACK = {"compression": {"kind": "top-k", "ratio": 0.4}}


_MIXED = [
    {"name": "quick", "count": 2, "device": {"examples_per_s": 10}},
    {
        "name": "slow",
        "count": 2,
        "devices_per_process": 2,
        "device": {"examples_per_s": 1},
        "availability": {"kind": "bernoulli", "probability": 0.7},
    },
]
"""Quick devices, and a pack of slow ones that are not always there."""

_HOLDING = {"name": "dev", "count": 4, "devices_per_process": 2, "partial_sums": True}
"""Packs that send sums in place of updates."""

_DIGITS = {
    "name": "digits",
    "validation_ratio": 0.3,
    "partition": {"kind": "dirichlet", "alpha": 0.3},
}
_FEDUCA = {"kind": "feduca", "strategies": 2}

_RATIONAL: Mapping[str, Mapping[str, Any]] = {
    "rational-phones": {  # batteries, devices that are away, and accidents
        "clock": {"round_s": 3600, "starts_at_h": 20},
        "task": _DIGITS,
        "server": {"rounds": 5, "goal": 2, "aggregator": _FEDUCA},
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
        "task": _DIGITS,
        "server": {"rounds": 4, "aggregator": _FEDUCA},
        "groups": [
            {
                "name": "dev",
                "count": 3,
                "participation": {
                    "kind": "rational",
                    "utility": {"test": "fitted", "threshold": "weight"},
                },
            }
        ],
    },
}


@cache
def scenarios() -> Mapping[str, Scenario]:
    """The fleets that tests name: small ones, each with its own part of the protocol."""
    found = [
        _scenario("inline", server={"rounds": 3, "heartbeat_s": 2.0}),
        _scenario(
            "partial-sums",
            server={"rounds": 3, "heartbeat_s": 2.0},
            groups=[
                {**_HOLDING, "link": _FEEDBACK},
                {"name": "other", "count": 1},
            ],
        ),
        _scenario(
            "secure-sums",
            server={"rounds": 2, "heartbeat_s": 2.0, "minimum": 3, "secure": {}},
            groups=[{"name": "dev", "count": 3}],
        ),
        _scenario(
            "noisy-secure-sums",
            server={
                "rounds": 2,
                "heartbeat_s": 2.0,
                "minimum": 3,
                "secure": {"range": 0.5, "bits": 12, "rounding": "stochastic"},
                "privacy": {"clip": 0.1, "noise": 1.0, "where": "sum"},
            },
            groups=[{"name": "dev", "count": 3}],
        ),
        _scenario(
            "one-secure-sum",
            server={"rounds": 1, "heartbeat_s": 2.0, "minimum": 3, "secure": {}},
            groups=[{"name": "dev", "count": 3}],
        ),
        _scenario(
            "secure-sums-of-parts",
            server={"rounds": 1, "heartbeat_s": 2.0, "minimum": 3, "secure": {}},
            task={"name": "linear", "dimension": 4, "examples_per_client": 8},
            groups=[
                {
                    "name": "half",
                    "count": 6,
                    "device": {"capacity": 0.5},
                    "mask": {"kind": "random", "schedule": "static"},
                }
            ],
        ),
        _scenario(
            "wall-secure-sums",
            server={
                "rounds": 2,
                "deadline_s": 4.0,
                "heartbeat_s": 2.0,
                "minimum": 3,
                "secure": {"drop_out": 0.2},
            },
            clock={"kind": "wall"},
            groups=[{"name": "dev", "count": 4}],
        ),
        _scenario(
            "large-partial-sums",
            task=_LARGE_TASK,
            training=_LARGE_TRAINING,
            server={"rounds": 2, "transfers": 1},
            groups=[_HOLDING],
        ),
        _scenario(
            "large",
            task=_LARGE_TASK,
            training=_LARGE_TRAINING,
            server={"rounds": 2, "transfers": 1},
        ),
        _scenario(
            "fedvarp",
            server={
                "rounds": 5,
                "deadline_s": 2.0,
                "mode": {"kind": "opportunistic", "max_staleness": 3},
                "aggregator": "fedvarp",
            },
            clock={"round_s": 2.0},
            groups=_MIXED,
        ),
        _scenario(
            "mifa",
            task=_LARGE_TASK,
            training=_LARGE_TRAINING,
            server={
                "rounds": 5,
                "transfers": 2,
                "selection": {"kind": "uniform", "k": 2},
                "aggregator": "mifa",
            },
            groups=[{"name": "dev", "count": 3}],
        ),
        _scenario(
            "masks",
            task={"name": "linear", "dimension": 3, "model": "mlp", "hidden": [6]},
            server={
                "rounds": 6,
                "aggregator": "fedplt",
                "mode": {"kind": "buffered", "k": 2, "concurrency": 3},
            },
            clock={"round_s": 2.0},
            groups=[
                {
                    "name": "blocks",
                    "count": 2,
                    "devices_per_process": 2,
                    "device": {"capacity": 0.5, "examples_per_s": 10},
                    "mask": {"kind": "blocks", "schedule": "rotating"},
                    "link": _FEEDBACK,
                },
                {
                    "name": "random",
                    "count": 2,
                    "device": {"capacity": 0.3, "examples_per_s": 1},
                    "mask": {"kind": "random", "schedule": "drawn"},
                },
            ],
        ),
        _scenario(
            "wall-partial-sums",
            server={
                "rounds": 4,
                "deadline_s": 5.0,
                "heartbeat_s": 2.0,
                "goal": 3,
                "aggregator": "scaffold",
            },
            clock={"kind": "wall"},
            groups=[_HOLDING],
        ),
        _scenario(
            "partial-sums-of-absent",
            seed=0,
            server={
                "rounds": 6,
                "deadline_s": 4.0,
                "heartbeat_s": 2.0,
                "selection": {"kind": "uniform", "k": 3},
            },
            clock={"kind": "wall", "round_s": 1.0},
            groups=[
                {
                    **_HOLDING,
                    "count": 6,
                    "devices_per_process": 3,
                    "device": {"examples_per_s": {"kind": "log-normal", "median": 1, "sigma": 1.5}},
                    "availability": {"kind": "bernoulli", "probability": 0.8},
                }
            ],
        ),
        _scenario(
            "busy-partial-sums",
            seed=4,
            server={
                "rounds": 4,
                "deadline_s": 4.0,
                "heartbeat_s": 2.0,
                "selection": {"kind": "uniform", "k": 3},
            },
            clock={"kind": "wall", "round_s": 1.0},
            groups=[
                {
                    **_HOLDING,
                    "devices_per_process": 4,
                    # The last device trains longer than the server waits for the sum of the others.
                    "device": {"examples_per_s": {"kind": "position", "first": 8, "step": -2.52}},
                }
            ],
        ),
        _scenario(
            "slices",
            task={"name": "linear", "dimension": 3, "model": "mlp", "hidden": [6]},
            server={"rounds": 3, "heartbeat_s": 2.0},
            groups=[
                {
                    "name": "dev",
                    "count": 3,
                    "device": {"capacity": 0.5},
                    "mask": {"kind": "width", "schedule": "rotating", "download": "slice"},
                }
            ],
        ),
        _scenario(
            "private-devices",
            server={"rounds": 3, "privacy": {"clip": 0.1, "noise": 1.0, "where": "device"}},
            groups=[{"name": "dev", "count": 3, "link": _FEEDBACK}],
        ),
        _scenario(
            "wall-finish",
            server={
                "rounds": 5,
                "deadline_s": 4.0,
                "heartbeat_s": 2.0,
                "mode": {"kind": "buffered", "k": 2, "concurrency": 3, "calls_at": "finish"},
            },
            clock={"kind": "wall", "round_s": 1.0},
            groups=_MIXED,
        ),
    ]
    found += [_scenario(name, **sections) for name, sections in {**FLEETS, **_RATIONAL}.items()]
    return {scenario.name: scenario for scenario in found}


def scenario_named(name: str) -> Scenario:
    """The scenario of a fleet that tests name, or of a drawn one: "fleet-" and its number."""
    if name in scenarios():
        return scenarios()[name]
    return drawn_fleet(int(name.removeprefix("fleet-")))
