"""Proposition E.1 as a fleet: two groups of devices that pull in opposite directions.

A device has f(θ) = ½ ‖θ − θ₀ ∓ γ‖² + ½ ridge ‖θ‖², so the curvature is μ = 1 + ridge, and at the
optimum the gradients of the groups are ±γ, of length G. Weights that are wrong by 1 ± ε leave
½ ε²G²/μ. (The statement of the proposition has the factor ⅛, its proof has ½.)
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from muster.common.config import validate
from muster.common.seeds import FloatArray
from muster.emulator.fleet.lives import task_of
from muster.emulator.scenario.population import population
from muster.emulator.scenario.scenario import Scenario
from muster.studies.results import Result
from muster.tasks.synthetic import OpenSynthetic

GAMMA = (1.2, -0.9)
RIDGE = 0.25

WRONG = (0.1, 0.3, 0.5, 0.9)
"""The errors ε of the weights of two devices."""

UNEVEN = 0.6
"""ε of the propensities (1 ± ε)/2 of two groups."""

_DEVICES, _ROUNDS, _TAIL = 40, 40, 0.6


def promised(epsilon: float) -> float:
    """½ ε²G²/μ."""
    return epsilon**2 * float(np.dot(GAMMA, GAMMA)) / (2 * (1 + RIDGE))


def two_devices(seed: int, epsilon: float) -> Scenario:
    """Two devices that always take part, with weights (1 ± ε)/2 in place of ½."""
    rule = {
        "kind": "weighted-normalised",
        "offer": "last",
        "p": [(1 + epsilon) / 2, (1 - epsilon) / 2],
    }
    return _scenario(seed, rule, 1, 30, 0.5, (1.0, 1.0))


def two_groups(seed: int, epsilon: float, rule: Mapping[str, Any]) -> Scenario:
    """Two groups of equal size, whose devices take part with the probabilities (1 ± ε)/2."""
    chances = ((1 + epsilon) / 2, (1 - epsilon) / 2)
    return _scenario(seed, rule, _DEVICES, _ROUNDS, 0.3, chances)


def _scenario(
    seed: int,
    rule: Mapping[str, Any],
    devices: int,
    rounds: int,
    rate: float,
    willing: Sequence[float],
) -> Scenario:
    return validate(
        Scenario,
        {
            "name": "fedipw-two-groups",
            "seed": seed,
            "task": {
                "name": "quadratic",
                "model": "linear",
                "dimension": len(GAMMA),
                "condition": 1.0,
                "heterogeneity": 0.0,
                "covariates": {"side": list(GAMMA)},
                "ridge": RIDGE,
            },
            "training": {"local_steps": 1, "batch_size": "full", "learning_rate": rate},
            "server": {"rounds": rounds, "aggregator": dict(rule)},
            "groups": [
                {
                    "name": name,
                    "count": devices,
                    "devices_per_process": devices,
                    "device": {"profile": "always-on"},
                    "covariates": {"z": {"side": side}},
                    "participation": {"willing": chance},
                }
                for name, side, chance in zip(("plus", "minus"), (1.0, -1.0), willing, strict=True)
            ],
        },
        "fedipw",
    )


def share_left(result: Result) -> float:
    """The gap of a run as a multiple of ½ ε²G²/μ: of its last model with two devices, and in the
    mean of its later rounds with two groups."""
    alone = result.scenario.devices == len(result.scenario.groups)
    loss = result.final("loss") if alone else result.tail_mean("loss", _TAIL)
    epsilon = result.labels["epsilon"]
    assert isinstance(epsilon, float)
    return (loss - _least_loss(result.scenario)) / promised(epsilon)


def _least_loss(read: Scenario) -> float:
    opened = task_of(read, population(read)).open(read.devices, read.seed)
    assert isinstance(opened, OpenSynthetic)
    theta = opened.optimum()
    designs = [opened.design(index) for index in range(read.devices)]
    losses = [np.mean((x @ theta - y) ** 2) / 2 for x, y in designs]
    return float(np.mean(losses) + opened.ridge / 2 * theta @ theta)


def fixed_point(weights: Sequence[float] | FloatArray, minimisers: FloatArray) -> FloatArray:
    """The minimiser of Σ w_i·f_i for f_i = ½ μ ‖θ − b_i‖² with the same curvature μ. It is the
    weighted mean of the b_i.

    Args:
        weights: w, >= 0, shape (n,); their scale does not matter.
        minimisers: b, shape (n,) or (n, parameters).
    """
    w = np.asarray(weights, dtype=np.float64)
    return np.asarray(w @ minimisers / w.sum())


class TwoClients(NamedTuple):
    """The instance of Proposition E.1 of FedIPW: f = ½ μ (θ ∓ a)², a = G/μ.

    Attributes:
        minimisers: a and −a.
        enrollment: enrollment propensities with which a rule that corrects only for participation
            ends up with these weights; the larger is 1.
        limit: the point to which such a rule converges; the optimum is 0.
        gap: F(limit) − F(0), from the definition of F.
        promised: ½ ε²G²/μ.
    """

    minimisers: FloatArray
    enrollment: FloatArray
    limit: float
    gap: float
    promised: float


def prop_e1(epsilon: float, heterogeneity: float = 1.0, curvature: float = 1.0) -> TwoClients:
    """The two clients of Proposition E.1: weights that are wrong by ε cause a gap of order ε²G²/μ.

    Args:
        epsilon: ε in (0, 1).
        heterogeneity: G > 0, the root mean square of the clients' gradients at the optimum.
        curvature: μ > 0.
    """
    a = heterogeneity / curvature
    minimisers, rho = np.array([a, -a]), np.array([1 + epsilon, 1 - epsilon])
    limit = float(fixed_point(rho, minimisers))

    def target(theta: float) -> float:
        return float(np.mean(curvature / 2 * (theta - minimisers) ** 2))

    promised = epsilon**2 * heterogeneity**2 / (2 * curvature)
    gap = target(limit) - target(0.0)
    return TwoClients(minimisers, rho / rho.max(), limit, gap, promised)
