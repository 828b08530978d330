"""Theorems 1 and 2 of the paper on a quadratic function, whose constants are known exactly.

With F_m = ½‖θ − b_g‖² and x = θ − θ*, where θ* is the minimiser of F, the gradient of F is x, and
its smoothness β is 1. A round takes the step x ← x − η(s·x − r). s is the sum of the devices'
weights, and r is the weighted sum of their b_g − θ*. Both depend on the event of the round alone,
so the expectations of ‖x‖², of the step's variance and of its bias follow a linear recursion.

The bound is the one of the paper's proof before its last two inequalities (equation 17, after ii):

    mean E‖∇F‖² ≤ 2(F(θ_0) − F*)/(ηT) + mean E‖∇F − E_t g‖² + 2βη · mean E‖g − E_t g‖²

where g is the aggregated gradient. `printed` computes the bounds as the paper states them.
"""

import math
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from muster.studies.correlated import fleet
from muster.studies.correlated.fleet import SIZES

Array = npt.NDArray[np.float64]
_DEVICES = sum(SIZES)


class Steps(NamedTuple):
    """The steps of a rule, one for each event: how many devices of each group take part.

    Attributes:
        chance: probability of each event, shape (events,).
        size: s, shape (events,).
        pull: r, shape (events, 3).
        device_variance: Var(1{m in S}/|S|) of a device of each group, shape (groups,).
    """

    chance: Array
    size: Array
    pull: Array
    device_variance: Array


def steps(scheme: str) -> Steps:
    """The steps of "biased", or of the debiased rule with the exact c."""
    through = [group.successes() for group in fleet.event_groups()]
    counts = np.array(list(product(*(range(size + 1) for size in SIZES))), np.float64)
    chance = np.array([math.prod(p) for p in product(*through)])
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    c = np.array(fleet.exact().shares)
    weights = shares if scheme == "biased" else shares / (_DEVICES * c)
    # A device takes part in counts/SIZES of an event's rounds, and each time it has 1/|S|.
    squares = chance @ (shares**2 / np.maximum(counts, 1) / SIZES)
    return Steps(chance, weights.sum(axis=1), weights @ fleet.corners(), squares - c**2)


class Expected(NamedTuple):
    """Expectations under a rule with weights that do not change, as means over the rounds.

    Attributes:
        gradient: of ‖∇F(θ_t)‖², for t = 0 to T − 1.
        bias: of ‖∇F − E_t g‖², the squared bias of the step's direction.
        variance: of ‖g − E_t g‖².
        bound: the bound of `gradient`.
    """

    gradient: float
    bias: float
    variance: float
    bound: float


def expected(rule: Steps, start: Array, rounds: int) -> Expected:
    """The expectations with the step 1/√rounds, from the point `start`, shape (3,).

    Raises:
        ValueError: fewer than 4 rounds, for which the theorems say nothing.
    """
    if rounds < 4:
        raise ValueError(f"expected at least 4 rounds, because T ≥ 4β² and β = 1; found {rounds}")
    rate = 1 / math.sqrt(rounds)
    p, s, r = rule.chance, rule.size, rule.pull
    mean_s, mean_r = p @ s, p @ r
    mean_ss, mean_sr, mean_rr = p @ s**2, (p * s) @ r, p @ (r**2).sum(axis=1)
    x, xx = start.astype(np.float64), float(start @ start)
    rows = np.empty((rounds, 3))
    for t in range(rounds):
        square = mean_ss * xx - 2 * mean_sr @ x + mean_rr
        straight = mean_s**2 * xx - 2 * mean_s * mean_r @ x + mean_r @ mean_r
        bias = (1 - mean_s) ** 2 * xx + 2 * (1 - mean_s) * mean_r @ x + mean_r @ mean_r
        rows[t] = xx, bias, square - straight
        xx += rate**2 * square - 2 * rate * (mean_s * xx - mean_r @ x)
        x = x - rate * (mean_s * x - mean_r)
    gradient, bias, variance = rows.mean(axis=0).tolist()
    # 2(F(θ_0) − F*) = ‖θ_0 − θ*‖².
    bound = float(start @ start) / (rate * rounds) + bias + 2 * rate * variance
    return Expected(gradient, bias, variance, bound)


def printed(scheme: str, start: Array, rounds: int) -> float:
    """The bound of Theorem 1 for "biased", and of Theorem 2 for the others, as printed.

    D bounds every ‖∇F_m‖² here, as the proofs need; the text bounds ‖∇F‖². It is taken over the
    triangle of the groups' minimisers and the start. R is Var(1{m in S}/|S|) itself.
    """
    b, size, delta = fleet.corners(), np.array(SIZES), fleet.DELTA
    sides = ((b[:, None] - np.vstack([b, start])) ** 2).sum(axis=2)
    d, c, variance = sides.max(), np.array(fleet.exact().shares), steps(scheme).device_variance
    sigma_2, root = _DEVICES * variance.max() * d, math.sqrt(rounds)
    first = float(start @ start) / root
    if scheme == "biased":
        bias = _DEVICES * d * (size * (1 / _DEVICES - c) ** 2).sum()
        return float(first + 2 * _DEVICES * sigma_2 / root + bias)
    t = np.arange(1, rounds + 1)[:, None]
    floor = (1 - c / delta) ** 2 * 2 * np.exp(-2 * t * (c - delta) ** 2)
    estimation = d * ((floor + variance.max() / (t * delta**2)) @ size).mean()
    return float(first + 2 * sigma_2 / (_DEVICES * delta**2 * root) + estimation)
