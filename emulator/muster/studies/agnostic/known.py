"""What is known exactly: the weights of the devices in a mean, and the minimisers under weights."""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import permutations, product
from typing import NamedTuple

import numpy as np

from muster.client.availability.k_of_n import effective_weights
from muster.common.seeds import FloatArray, stream
from muster.emulator.fleet.group_shares import shares_of_groups
from muster.emulator.fleet.lives import task_of
from muster.emulator.scenario.population import population
from muster.emulator.scenario.scenario import Scenario
from muster.studies.agnostic.fleet import (
    DECAY,
    DEVICES,
    OFTEN,
    PARTICIPANTS,
    QUADRATICS_DECAY,
    SELDOM,
)
from muster.tasks.synthetic import OpenSynthetic

EQUAL = np.full(DEVICES, 1 / DEVICES)
FAR = "equal weights"
_DRAWS = 50_000


def raw(decay: float) -> FloatArray:
    """The raw weights exp(−i / decay), divided by their sum."""
    return _sums_to_one(np.exp(-np.arange(DEVICES) / decay))


@cache
def shares(decay: float = DECAY) -> FloatArray:
    """The exact p, shape (devices,); they sum to 1."""
    return effective_weights(raw(decay), PARTICIPANTS)


@cache
def twice_counted(decay: float) -> FloatArray:
    """E[p_i 1{i in S} / Σ_S p]: the weight of each device, in the long run, in a mean over the
    participants with the weights p_i. Computed from 50,000 draws, to about 0.001 in each round's
    sum; shape (devices,).
    """
    uniform = stream(0, "agnostic", "draws").random((_DRAWS, DEVICES))
    arrivals = -np.log1p(-uniform) / raw(decay)
    drawn = np.argpartition(arrivals, PARTICIPANTS - 1, axis=1)[:, :PARTICIPANTS]
    weights = shares(decay)[drawn]
    weights /= weights.sum(axis=1, keepdims=True)
    return np.bincount(drawn.ravel(), weights.ravel(), DEVICES) / _DRAWS


def inclusion_of_random_size() -> FloatArray:
    """π of the devices of `random size`: how probable it is that each comes; shape (devices,)."""
    return np.repeat([g.device_probability for g in (OFTEN, SELDOM)], [OFTEN.size, SELDOM.size])


@cache
def shares_of_random_size() -> FloatArray:
    """p of the devices of `random size`: E[1{i in S}/|S|] over the rounds in which one comes.

    It is the sum over the numbers of devices of each group that come.
    """
    shares, empty = shares_of_groups([OFTEN, SELDOM])
    return np.repeat(shares / (1 - empty), [OFTEN.size, SELDOM.size])


def shares_by_subsets(inclusion: FloatArray) -> FloatArray:
    """E[1{i in S}/|S|] over the non-empty S by going through all 2^n subsets, where devices come
    independently with the probabilities `inclusion`."""
    found = np.zeros(len(inclusion))
    for coins in product((0.0, 1.0), repeat=len(inclusion)):
        came = np.array(coins)
        chance = np.prod(np.where(came > 0, inclusion, 1 - inclusion))
        found += chance * came / max(came.sum(), 1.0)
    return _sums_to_one(found)


class LimitWeights(NamedTuple):
    """The weights of the devices at the limit of a part, and others that one might expect.

    Attributes:
        others: what the weights are called to the weights.
    """

    weights: FloatArray
    others: Mapping[str, FloatArray]


def limits() -> dict[str, LimitWeights]:
    """Part to the limit of agnostic averaging."""
    of_draws, of_coins = shares(QUADRATICS_DECAY), shares_of_random_size()
    return {
        "quadratics": LimitWeights(
            of_draws,
            {
                FAR: EQUAL,
                "the raw weights": raw(QUADRATICS_DECAY),
                "p²/Σp²": _sums_to_one(of_draws**2),
            },
        ),
        "random size": LimitWeights(
            of_coins,
            {
                FAR: _sums_to_one(np.ones(len(of_coins))),
                "π/Σπ": _sums_to_one(inclusion_of_random_size()),
                "p²/Σp²": _sums_to_one(of_coins**2),
            },
        ),
    }


class Known:
    """The minimiser and gap of Σ w_i f_i, where f_i is the loss of device i in a linear model."""

    def __init__(self, scenario: Scenario) -> None:
        task = task_of(scenario, population(scenario))
        opened = task.open(scenario.devices, scenario.seed)
        assert isinstance(opened, OpenSynthetic)
        self._opened = opened
        self._absolute = getattr(task, "loss", "") == "absolute"
        designs = [opened.design(index) for index in range(scenario.devices)]
        self._x, self._y = (np.array(parts) for parts in zip(*designs, strict=True))
        self._minimisers: dict[bytes, FloatArray] = {}  # many gaps have the same one

    def minimiser(self, weights: FloatArray) -> FloatArray:
        key = np.asarray(weights).tobytes()
        if key not in self._minimisers:
            self._minimisers[key] = self._opened.optimum(weights)
        return self._minimisers[key]

    def gap(self, theta: FloatArray, weights: FloatArray) -> float:
        """Σ w_i f_i at `theta` minus its minimum."""
        return self._value(theta, weights) - self._value(self.minimiser(weights), weights)

    def _value(self, theta: FloatArray, weights: FloatArray) -> float:
        errors = self._x @ theta - self._y  # (devices, examples)
        each = np.abs(errors) if self._absolute else errors**2 / 2
        return float(weights @ each.mean(axis=1))


def _sums_to_one(weights: FloatArray) -> FloatArray:
    found: FloatArray = weights / weights.sum()
    return found


def shares_by_enumeration(weights: Sequence[float] | FloatArray, k: int) -> FloatArray:
    """The shares p_i = Σ q(A) 1{i in A} / |A| over the draws A of k devices without replacement,
    computed by enumeration of every order in which k devices can be drawn.

    `effective_weights` computes the same; this function is for a few devices. The draw is that of
    Agnostic FedAvg: each step draws one of the remaining devices in proportion to its weight.

    Args:
        weights: > 0, shape (n,).
        k: number of devices to draw, at least 1; there are n! / (n − k)! orders.

    Returns:
        Shape (n,), with the sum 1.
    """
    w = np.asarray(weights, dtype=np.float64)
    shares = np.zeros(len(w))
    for order in permutations(range(len(w)), min(k, len(w))):
        drawn = w[list(order)]
        left = w.sum() - np.concatenate([[0.0], np.cumsum(drawn)[:-1]])
        shares[list(order)] += np.prod(drawn / left) / len(order)
    return shares


def skew(shares: Sequence[float] | FloatArray) -> float:
    """The distance ‖p − 1/N‖₁ of shares p from equal shares, from 0 to 2 − 2/N."""
    p = np.asarray(shares, dtype=np.float64)
    return float(np.abs(p - 1 / len(p)).sum())
