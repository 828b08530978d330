"""Exactly k of a group's devices, drawn without replacement.

The first k of an exponential race, in which device i arrives after Exp(w_i), are a draw without
replacement with weights w (Efraimidis, Spirakis, Weighted random sampling with a reservoir, 2006);
that is the top k of log w plus Gumbel noise. Every device runs the whole race of its group, from
the same stream.
"""

import math
from functools import cached_property
from typing import Self

import numpy as np
from pydantic import model_validator

from muster.client.availability.contract import (
    Availability,
    AvailabilityProcess,
    DeviceBatch,
    FixedDraws,
    StepContext,
)
from muster.common.bounds import DeviceCount, Positive
from muster.common.seeds import BoolArray, FloatArray, Numbers

_SCAN = 0.25
"""Step in log time by which the window of the integral is sought."""

_PANEL = 6.0
"""Longest piece of log time that is integrated by one Gauss-Legendre rule of `_NODES` nodes."""

_NODES = 64

_EXACT_UP_TO = 1_000_000
"""k times devices; beyond it the exact probabilities take a plan longer than ten seconds, and it is
given near ones."""

_NUMBERS_AHEAD = 1024

_SMALLEST_EXPONENT = -700.0
"""exp of it is still a normal number."""


def inclusion_probabilities(weights: FloatArray, k: int) -> FloatArray:
    """The probability of each device to be among the k drawn; they sum to k.

    Device i is, if fewer than k others arrive before it: ∫ w_i exp(−w_i t) P(fewer by t) dt, where
    the number of others by t is Poisson-binomial with 1 − exp(−w_j t). Exact to about 1e-12; takes
    time as n log n · k, a second for 1,000 devices and k = 100.

    Args:
        weights: > 0, shape (n,).
        k: of n, at least 1.
    """
    n = len(weights)
    if k >= n or np.all(weights == weights[0]):
        return np.full(n, min(k / n, 1.0))
    begin, end = _undecided(weights, k)
    panels = max(2, math.ceil((end - begin) / _PANEL))
    nodes, node_weights = np.polynomial.legendre.leggauss(_NODES)
    width = (end - begin) / panels
    logs = begin + width * (np.arange(panels)[:, np.newaxis] + (nodes + 1) / 2).ravel()
    hazards = weights * np.exp(logs)[:, np.newaxis]
    densities = hazards * np.exp(-hazards) * _fewer_others(-np.expm1(-hazards), k)
    inclusion: FloatArray = np.tile(node_weights * width / 2, panels) @ densities
    return inclusion - np.expm1(-weights * math.exp(begin))


def _undecided(weights: FloatArray, k: int) -> tuple[float, float]:
    """Log times between which the k-th device arrives, but for a probability of 1e-15 · n."""
    first = math.log(1e-17 / weights.sum())
    last = math.log((40 + math.log(k + 1)) / np.sort(weights)[-k - 1])
    logs = np.linspace(first, last, math.ceil((last - first) / _SCAN) + 1)
    arrived = -np.expm1(-weights * np.exp(logs)[:, np.newaxis])
    counts = _joined(_nobody(len(logs), k + 1), arrived)
    begun = counts[:, :k].sum(axis=1) < 1 - 1e-15 * len(weights)
    within = np.flatnonzero(begun & (counts.sum(axis=1) > 1e-17))
    return float(logs[max(within[0] - 1, 0)]), float(logs[min(within[-1] + 1, len(logs) - 1)])


def effective_weights(weights: FloatArray, k: int) -> FloatArray:
    """p_i = Σ over draws A of q(A) 1{i in A} / |A|, what an unweighted mean over the drawn gives
    device i (agnostic FedAvg); they sum to 1."""
    return inclusion_probabilities(weights, k) / min(k, len(weights))


def _fewer_others(arrived: FloatArray, k: int) -> FloatArray:
    """The probability that fewer than k of the others have arrived, shape (instants, n).

    Args:
        arrived: the probability that each has, shape (instants, n).
    """
    found = np.empty_like(arrived)

    # Down to one device, with the distribution of how many of the others have arrived. Taking one
    # out of the distribution of all would be quicker, but is unstable.
    def halve(counts: FloatArray, first: int, last: int) -> None:
        if last - first == 1:
            found[:, first] = counts.sum(axis=1)
        else:
            middle = (first + last) // 2
            halve(_joined(counts, arrived[:, middle:last]), first, middle)
            halve(_joined(counts, arrived[:, first:middle]), middle, last)

    halve(_nobody(len(arrived), k), 0, arrived.shape[1])
    return found


def _nobody(instants: int, k: int) -> FloatArray:
    """The distribution of a number below k that is 0, at every instant, shape (instants, k)."""
    counts = np.zeros((instants, k))
    counts[:, 0] = 1.0
    return counts


def _joined(counts: FloatArray, arrived: FloatArray) -> FloatArray:
    """The distribution of a number, shape (instants, k), after further devices were counted, each
    with its own probability, shape (instants, devices); what reaches k is dropped."""
    for here in arrived.T[:, :, np.newaxis]:
        more = counts * (1 - here)
        more[:, 1:] += counts[:, :-1] * here
        counts = more
    return counts


def _nearly_inclusion(weights: FloatArray, k: int) -> FloatArray:
    """Inclusion probabilities as if the k-th device came when k are expected, off by a relative
    1 / (4k) or so."""
    logs = np.log(weights)
    low, high = -logs.max() - 40, -logs.min() + 40
    for _ in range(100):
        middle = (low + high) / 2
        enough = _arrived(logs + middle).sum() >= k
        low, high = (low, middle) if enough else (middle, high)
    return _arrived(logs + high)


def _arrived(log_hazards: FloatArray) -> FloatArray:
    arrived: FloatArray = -np.expm1(-np.exp(np.minimum(log_hazards, 40)))
    return arrived


class _KOfN(AvailabilityProcess):
    def __init__(self, cast: DeviceBatch, k: int, log_weights: FloatArray) -> None:
        super().__init__(cast)
        self._k, self._log_weights = k, log_weights
        ahead = max(1, _NUMBERS_AHEAD // cast.size)
        self._draws = Numbers(cast.seed, ("k-of-n",), [cast.group], cast.size, ahead)

    def on(self, scene: StepContext) -> BoolArray:
        with np.errstate(divide="ignore"):  # A number of 0 arrives at once.
            noise = -np.log(-np.log1p(-self._draws.at(scene.step)[0]))
        drawn = np.zeros(self.cast.size, dtype=np.bool_)
        drawn[np.argpartition(-self._log_weights - noise, self._k - 1)[: self._k]] = True
        return drawn[self.cast.positions]

    def chance(self, scene: StepContext) -> FloatArray:
        return self._inclusion[self.cast.positions]

    @cached_property
    def _inclusion(self) -> FloatArray:
        exact = self._k * self.cast.size <= _EXACT_UP_TO
        found = inclusion_probabilities if exact else _nearly_inclusion
        return found(np.exp(self._log_weights), self._k)


class KOfN(Availability):
    """In every step exactly k of the group's devices, drawn one after the other without
    replacement, each draw in proportion to the weights of those that are left.

    A device more or less in the group changes the draws of all.
    """

    k: DeviceCount
    """Devices that are available in a step."""

    weights: list[Positive] | None = None
    """One for every device of the group, in their order. Absent, and `decay` too: all equal."""

    decay: Positive | None = None
    """Device i, from 0, has the weight exp(−i / decay), instead of `weights`. The experiments of
    Convergence of Agnostic Federated Averaging have 100 devices, k = 10 and decay = 10."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.weights is not None and self.decay is not None:
            raise ValueError("weights and decay both say how likely devices are; leave one out")
        return self

    def process(self, cast: DeviceBatch) -> AvailabilityProcess:
        return _KOfN(cast, self.k, self._log_weights(cast.size))

    def check(self, group: str, size: int, step_s: float) -> None:
        if self.k > size:
            raise ValueError(f"k = {self.k} of a group of {size}; expected at most {size}")
        if self.weights is not None and len(self.weights) != size:
            raise ValueError(f"found {len(self.weights)} weights, expected one per device: {size}")
        smallest = self._log_weights(size)[-1]
        if self.decay is not None and smallest < _SMALLEST_EXPONENT:
            raise ValueError(
                f"decay = {self.decay:g} gives the last of {size} devices the weight "
                f"exp({smallest:.0f}), too small for a number; expected decay of at least "
                f"{(size - 1) / -_SMALLEST_EXPONENT:.2g}"
            )

    def weights_of(self, size: int) -> FloatArray:
        """The weights of a group's devices, shape (size,)."""
        weights: FloatArray = np.exp(self._log_weights(size))
        return weights

    def _log_weights(self, size: int) -> FloatArray:
        if self.decay is not None:
            return np.arange(size) / -self.decay
        weights: FloatArray = np.log(np.ones(size) if self.weights is None else self.weights)
        return weights

    def closed_form(self) -> FixedDraws:
        return FixedDraws(self.k, self.weights_of)
