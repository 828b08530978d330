"""The simulated fleets."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from muster.common.config import validate
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.asynchronous_fleets import FLEETS
from muster.simulation.rational_fleets import RATIONAL

LARGE = 17_000
"""Number of parameters of a model that does not fit into a message of Attend."""


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
_NARROW = {"model": "mlp", "hidden": [4]}
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

_MODELLED_LIFE = [
    {
        "name": "phones",
        "count": 3,
        "device": {"profile": "phone", "examples_per_s": 0.02},
        "availability": {"kind": "markov", "mean_up_s": 7200, "mean_down_s": 1800},
        "participation": {"drop_out": 0.3},
    },
    {
        "name": "away",
        "count": 2,
        "device": {"profile": "tablet", "examples_per_s": 0.1},
        "availability": {"kind": "markov", "mean_up_s": 1800, "mean_down_s": 3600},
        "covariates": {"x": {"battery": "battery"}},
    },
]
"""Devices whose lives go on for as long as rounds last; some report in advance."""

_HOLDING = {"name": "dev", "count": 4, "devices_per_process": 2, "partial_sums": True}
"""Packs that send sums in place of updates."""

_UNEQUAL = [
    {"name": "long", "count": 1, "training": {"local_steps": 4}},
    {"name": "short", "count": 2},
]
"""Devices that take different numbers of local steps."""


@cache
def scenarios() -> Mapping[str, Scenario]:
    """Scenarios by name: small fleets that together use every part of the protocol."""
    found = [
        _scenario("inline", server={"rounds": 3, "heartbeat_s": 2.0}),
        _scenario(
            "packs",
            server={"rounds": 3, "evaluate_every": 2},
            groups=[{"name": "dev", "count": 4, "devices_per_process": 2, "link": _FEEDBACK}],
        ),
        _scenario(
            "partial-sums",
            server={"rounds": 3, "heartbeat_s": 2.0},
            groups=[
                {**_HOLDING, "link": _FEEDBACK},
                {"name": "other", "count": 1},
            ],
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
            "slow",
            task=_LARGE_TASK,
            training=_LARGE_TRAINING,
            server={"rounds": 2, "transfers": 2},
            groups=[{"name": "dev", "count": 2, "link": {"up": "64 kbit/s", "down": "64 kbit/s"}}],
        ),
        _scenario(
            "goal",
            server={
                "rounds": 3,
                "deadline_s": 10.0,
                "selection": {"kind": "uniform", "k": 2, "over_selection": 1.5},
                "aggregator": "agnostic",
            },
            groups=[
                {"name": "quick", "count": 2, "device": {"examples_per_s": 10}},
                {"name": "late", "count": 2, "device": {"examples_per_s": 0.1}},
            ],
        ),
        _scenario(
            "life",
            server={"rounds": 4},
            clock={"round_s": 3600},
            groups=[
                {
                    "name": "dev",
                    "count": 3,
                    "device": {"profile": "phone"},
                    "availability": {"kind": "markov", "mean_up_s": 7200, "mean_down_s": 3600},
                    "participation": {"drop_out": 0.3},
                }
            ],
        ),
        _scenario(
            "opportunistic",
            server={
                "rounds": 5,
                "deadline_s": 2.0,
                "mode": {"kind": "opportunistic", "max_staleness": 3},
            },
            clock={"round_s": 2.0},
            groups=_MIXED,
        ),
        _scenario(
            "modelled",
            server={
                "rounds": 6,
                "deadline_s": 20.0,
                "selection": {"kind": "uniform", "k": 2, "over_selection": 1.5},
            },
            clock={"kind": "modelled", "round_s": 2.0},
            groups=_MIXED,
        ),
        _scenario(
            "modelled-life",
            server={"rounds": 6, "deadline_s": 4000.0, "goal": 2},
            clock={"kind": "modelled", "round_s": 600.0},
            groups=_MODELLED_LIFE,
        ),
        _scenario(
            "modelled-opportunistic",
            server={
                "rounds": 6,
                "goal": 2,
                "mode": {"kind": "opportunistic", "max_staleness": 3},
            },
            clock={"kind": "modelled", "round_s": 2.0},
            groups=_MIXED,
        ),
        _scenario(
            "buffered",
            server={"rounds": 6, "mode": {"kind": "buffered", "k": 2, "concurrency": 3}},
            clock={"round_s": 2.0},
            groups=_MIXED,
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
            "asynchronous",
            task=_LARGE_TASK,
            training=_LARGE_TRAINING,
            server={
                "rounds": 5,
                "transfers": 2,
                "mode": {"kind": "buffered", "k": 1, "concurrency": 2, "max_staleness": 1},
            },
            groups=[
                {"name": "quick", "count": 2, "device": {"examples_per_s": 10}},
                {"name": "slow", "count": 1, "device": {"examples_per_s": 1}},
            ],
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
            "masks-large",
            task=_LARGE_TASK,
            training=_LARGE_TRAINING,
            server={"rounds": 3, "transfers": 1, "aggregator": "fedplt"},
            groups=[
                {
                    "name": "part",
                    "count": 2,
                    "device": {"capacity": 0.4},
                    "mask": {"kind": "random", "schedule": "rotating"},
                },
                {"name": "whole", "count": 1},
            ],
        ),
        _scenario(
            "slices",
            task={"name": "linear", "dimension": 5_000, "examples_per_client": 4, **_NARROW},
            training=_LARGE_TRAINING,
            server={"rounds": 3, "transfers": 1, "aggregator": "fedplt"},
            groups=[
                {
                    "name": "pack",
                    "count": 2,
                    "devices_per_process": 2,
                    "device": {"capacity": 0.6},
                    "mask": {"kind": "width", "schedule": "drawn"},
                },
                {
                    "name": "alone",
                    "count": 1,
                    "device": {"capacity": 0.6},
                    "mask": {"kind": "width", "schedule": "rotating"},
                },
            ],
        ),
        _scenario(
            "robust",
            task=_LARGE_TASK,
            training=_LARGE_TRAINING,
            server={
                "rounds": 4,
                "transfers": 2,
                "deadline_s": 2.0,
                "mode": "opportunistic",
                "aggregator": {"kind": "bulyan", "byzantine": 0},
            },
            clock={"round_s": 2.0},
            groups=[
                {"name": "quick", "count": 3, "device": {"examples_per_s": 10}},
                {"name": "slow", "count": 1, "device": {"examples_per_s": 1}},
            ],
        ),
        _scenario(
            "wall",
            server={"rounds": 4, "deadline_s": 5.0, "heartbeat_s": 2.0, "goal": 1},
            clock={"kind": "wall"},
        ),
        *(
            _scenario(
                f"wall-{absence}",
                server={"rounds": 5, "deadline_s": 4.0, "heartbeat_s": 2.0},
                clock={"kind": "wall", "round_s": 1.0},
                groups=[
                    {
                        "name": "dev",
                        "count": 3,
                        "availability": {
                            "kind": "markov",
                            "mean_up_s": 6.0,
                            "mean_down_s": 3.0,
                            "absence": absence,
                        },
                    }
                ],
            )
            for absence in ("close", "silent")
        ),
        *(
            _scenario(
                f"wall-{name}",
                server={"rounds": 5, "deadline_s": 4.0, "heartbeat_s": 2.0, "mode": mode},
                clock={"kind": "wall", "round_s": 1.0},
                groups=_MIXED,
            )
            for name, mode in {
                "opportunistic": {"kind": "opportunistic", "max_staleness": 2},
                "buffered": {"kind": "buffered", "k": 2, "concurrency": 3},
                "finish": {"kind": "buffered", "k": 2, "concurrency": 3, "calls_at": "finish"},
            }.items()
        ),
        _scenario(
            "wall-large-buffered",
            task=_LARGE_TASK,
            training=_LARGE_TRAINING,
            server={
                "rounds": 4,
                "deadline_s": 6.0,
                "transfers": 1,
                "mode": {"kind": "buffered", "k": 1, "concurrency": 2},
            },
            clock={"kind": "wall"},
            groups=[{"name": "dev", "count": 3, "device": {"examples_per_s": 4}}],
        ),
        _scenario(
            "wall-large",
            task=_LARGE_TASK,
            training=_LARGE_TRAINING,
            server={"rounds": 3, "deadline_s": 5.0, "transfers": 1},
            clock={"kind": "wall"},
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
            "private",
            server={
                "rounds": 5,
                "aggregator": "fedadam",
                "mode": {"kind": "buffered", "k": 2, "concurrency": 3},
                "privacy": {"clip": 0.1, "noise": 1.0},
            },
            clock={"round_s": 2.0},
            groups=_MIXED,
        ),
        _scenario(
            "private-devices",
            server={"rounds": 3, "privacy": {"clip": 0.1, "noise": 1.0, "where": "device"}},
            groups=[{"name": "dev", "count": 3, "link": _FEEDBACK}],
        ),
        _scenario(
            "control",
            server={
                "rounds": 5,
                "aggregator": "scaffold",
                "selection": {"kind": "uniform", "k": 2, "over_selection": 1.5},
            },
            groups=[
                {"name": "quick", "count": 2, "device": {"examples_per_s": 10}},
                {
                    "name": "late",
                    "count": 3,
                    "devices_per_process": 3,
                    "device": {"examples_per_s": 1},
                    "participation": {"drop_out": 0.3},
                },
            ],
        ),
        _scenario(
            "control-large",
            task=_LARGE_TASK,
            training=_LARGE_TRAINING,
            server={"rounds": 3, "transfers": 1, "aggregator": "scaffold"},
        ),
        _scenario("unequal", server={"rounds": 4, "aggregator": "fednova"}, groups=_UNEQUAL),
        _scenario(
            "fair",
            task=_LARGE_TASK,
            training=_LARGE_TRAINING,
            server={"rounds": 3, "transfers": 2, "aggregator": "q-fedavg"},
            groups=_UNEQUAL,
        ),
    ]
    found += [_scenario(name, **sections) for name, sections in {**FLEETS, **RATIONAL}.items()]
    return {scenario.name: scenario for scenario in found}
