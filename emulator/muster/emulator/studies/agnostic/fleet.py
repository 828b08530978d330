"""The fleet of the study `agnostic`: a hundred devices, of which ten take part in a round.

The ten are drawn without replacement with weights exp(−i / decay). Therefore p_i, the share of
device i in a mean over the participants, falls with i; it falls faster if the decay is smaller.
"""

import math
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from muster.common.config import validate
from muster.common.seeds import FloatArray
from muster.emulator.fleet.closed_forms import effective_weights
from muster.emulator.scenario.scenario import Scenario
from muster.tasks.synthetic import OpenSynthetic

DEVICES, PARTICIPANTS, STEPS = 100, 10, 5
"""N, M and H; the paper does not state H."""
DECAY = 10
AGNOSTIC, NORMALISED, WEIGHTED = RULES = ("agnostic", "weighted-normalised", "weighted")


class Problem(NamedTuple):
    """A task and its training settings.

    Attributes:
        step: c of the learning rate η = c/√(TH), which is the same in all T rounds.
        radius: radius of the ball C in which training stays.
        small: radius of a ball that binds; 0 if the study does not use one.
    """

    task: Mapping[str, Any]
    step: float
    radius: float
    batch_size: int | str
    small: float = 0.0

    def rate(self, rounds: int) -> float:
        """The learning rate η."""
        return self.step / math.sqrt(rounds * STEPS)


# Rates and radii were chosen on the seeds 1 to 3: rates with which agnostic averaging is quick and
# stable, and radii three to four times as large as the distance that it covers.
LINEAR = Problem(
    {"name": "linear", "dimension": 10, "heterogeneity": 0.5, "examples_per_client": 50},
    step=1.0,
    radius=10.0,
    batch_size=10,
)

# One curvature, 1, and exact gradients. The rate is large, .3 for 1,500 rounds: a round leaves
# (1 − η)^H = .17 of the way to the participants' mean, so the starting point is soon forgotten.
QUADRATICS = Problem(
    {"name": "quadratic", "dimension": 2, "condition": 1.0, "heterogeneity": 0.1},
    step=26.0,
    radius=10.0,
    batch_size="full",
)


def pictures(data: str | None) -> Problem:
    """Softmax regression on digits, of which most devices hold two classes.

    Args:
        data: the data directory, for MNIST; None for scikit-learn's digits.
    """
    task = {"model": "softmax", "partition": {"kind": "shards"}}
    if data is None:
        return Problem({"name": "digits", **task}, 10.0, radius=50.0, batch_size=32, small=5.0)
    there = {"name": "mnist", "data": {"directory": data}, **task}
    return Problem(there, 5.0, radius=20.0, batch_size=32, small=2.0)


def rules_at(decay: float) -> tuple[str, ...]:
    """The rules that are run with this decay."""
    return RULES if decay == DECAY else (AGNOSTIC, WEIGHTED)


def scenario(
    problem: Problem,
    seed: int,
    rounds: int,
    rule: str = AGNOSTIC,
    decay: float = DECAY,
    evaluate_every: int | None = None,
) -> Scenario:
    """The scenario of a run: the rule offers the average of its iterates, which is evaluated on
    every device.

    Args:
        evaluate_every: rounds between evaluations; None for one evaluation at the end.
    """
    return validate(
        Scenario,
        {
            "name": "agnostic",
            "seed": seed,
            "task": dict(problem.task),
            "training": {
                "learning_rate": problem.rate(rounds),
                "local_steps": STEPS,
                "batch_size": problem.batch_size,
                "projection_radius": problem.radius,
            },
            "server": {
                "rounds": rounds,
                "aggregator": rule,
                "evaluate_every": evaluate_every or rounds,
                "evaluate_devices": True,
            },
            "groups": [
                {
                    "name": "device",
                    "count": DEVICES,
                    "devices_per_process": DEVICES // 2,
                    "availability": {"kind": "k-of-n", "k": PARTICIPANTS, "decay": decay},
                }
            ],
        },
        "agnostic",
    )


@cache
def shares(decay: float = DECAY) -> FloatArray:
    """The exact p, shape (devices,); they sum to 1."""
    return effective_weights(np.exp(-np.arange(DEVICES) / decay), PARTICIPANTS)


EQUAL = np.full(DEVICES, 1 / DEVICES)


class LeastSquares:
    """The minimiser and gap of Σ w_i f_i, where f_i is half the mean squared error of device i."""

    def __init__(self, scenario: Scenario) -> None:
        opened = scenario.task.open(scenario.devices, scenario.seed)
        assert isinstance(opened, OpenSynthetic)
        self._opened = opened
        designs = [opened.design(index)[0] for index in range(scenario.devices)]
        self._curvatures = np.array([x.T @ x / len(x) for x in designs])

    def minimiser(self, weights: FloatArray) -> FloatArray:
        return self._opened.optimum(weights)

    def gap(self, theta: FloatArray, weights: FloatArray) -> float:
        """Σ w_i f_i at `theta` minus its minimum."""
        off = theta - self.minimiser(weights)
        return float(off @ np.tensordot(weights, self._curvatures, 1) @ off) / 2
