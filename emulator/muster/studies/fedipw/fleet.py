"""The fleet of the study `fedipw`. The paper does not state its own; this one shows its effects.

The effects Γ of the covariates on the data are fixed. If each seed drew its own, the bias of
enrollment would be large with some seeds and small with others.
"""

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from muster.common.config import validate
from muster.emulator.scenario.scenario import Scenario

Z = ("z1", "z2", "z3")

EFFECTS: Mapping[str, list[float]] = {
    "z1": [0.6, 0.0, 0.0, 0.0, 0.8],
    "z2": [0.0, 0.6, 0.0, 0.0, 0.8],
    "z3": [0.0, 0.0, 0.6, 0.0, 0.8],
}
"""γ_j, the columns of Γ, of length 1: on the four slopes, then on the constant. Enrollment prefers
devices with high Z, so the constants of the three add up in the bias."""

OPPOSED: Mapping[str, list[float]] = {**EFFECTS, "z1": [-effect for effect in EFFECTS["z1"]]}
"""The same effects, but that of z1 is reversed: a part of the biases of the three cancels."""

TRAINING: Mapping[str, Any] = {"local_steps": 5, "batch_size": "full", "learning_rate": 0.3}

RULES: Mapping[str, Mapping[str, Any]] = {
    "fedavg": {"kind": "fedavg"},
    "participation-ipw": {"kind": "participation-ipw"},
    "fedipw": {"kind": "fedipw"},
    "oracle-ipw": {"kind": "oracle-ipw"},
}
COARSE = {"kind": "calibrated", "method": "entropy", "on": [f"{z} > 0" for z in Z]}
ONE_MEAN = {"kind": "calibrated", "method": "quadratic", "on": [Z[0]]}
BY_MEANS = {"kind": "calibrated", "method": "entropy", "if_infeasible": "soft"}

WEAK, STRENGTH, STRONG = 0.5, 1.5, 3.0
STRENGTHS = (WEAK, STRENGTH, STRONG)
SMALL, LARGE = 0.1, 0.75
NOISES = (0.0, SMALL, 0.25, 0.5, LARGE)
_ENROLLED, _TAKING_PART = 0.4, 0.3


def scenario(
    devices: int,
    rounds: int,
    seed: int,
    rule: Mapping[str, Any],
    strength: float = STRENGTH,
    noise: float | None = None,
    effects: Mapping[str, list[float]] = EFFECTS,
    training: Mapping[str, Any] = TRAINING,
) -> Scenario:
    """The scenario of a fleet whose enrollment and participation prefer the same devices.

    Args:
        strength: s of logit πᵉ = a₀ + s·βᵀZ, β = 1/√3 in each of three covariates.
        noise: τ of the error τ·N(0, I) of the means; None if the server knows the whole population.
        effects: γ_j by covariate, each with the slopes and then the constant.
    """
    beta = 1 / math.sqrt(len(Z))
    return validate(
        Scenario,
        {
            "name": "fedipw",
            "seed": seed,
            "task": {
                "name": "logistic",
                "model": "linear",
                "bias": True,
                "dimension": 4,
                "examples_per_client": 20,
                "scale": 1.0,
                "heterogeneity": 0.2,
                "covariates": dict(effects),
                "ridge": 0.01,
            },
            "training": dict(training),
            "server": {
                "rounds": rounds,
                "aggregator": dict(rule),
                "information": "full" if noise is None else "limited",
                "moments_noise": noise or 0.0,
            },
            "groups": [
                {
                    "name": "device",
                    "count": devices,
                    "devices_per_process": -(-devices // 2),
                    "device": {"profile": "always-on"},
                    "covariates": {
                        "z": {z: {"kind": "normal"} for z in Z},
                        "x": {"load": {"kind": "normal"}},
                    },
                    "enrollment": {
                        "kind": "logistic",
                        "intercept": intercept(_ENROLLED, strength),
                        "z": dict.fromkeys(Z, strength * beta),
                    },
                    "participation": {
                        "willing": {
                            "intercept": intercept(_TAKING_PART, math.sqrt(2)),
                            "z": dict.fromkeys(Z, beta),
                            "x": {"load": 1.0},
                        }
                    },
                }
            ],
        },
        "fedipw",
    )


@cache
def intercept(mean: float, deviation: float) -> float:
    """a with E[1/(1 + exp(−(a + deviation·N(0, 1))))] = mean, by bisection."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()
    low, high = -40.0, 40.0
    for _ in range(100):
        middle = (low + high) / 2
        if weights @ np.exp(-np.logaddexp(0, -(middle + deviation * nodes))) < mean:
            low = middle
        else:
            high = middle
    return low
