"""Availability of exactly k of a group's devices, drawn without replacement.

In an exponential race device i arrives after a time Exp(w_i). The first k that arrive are a draw
without replacement with weights w (Efraimidis, Spirakis, Weighted random sampling with a reservoir,
2006); they are the top k of log w plus Gumbel noise. Every device runs the whole race of its group,
from the same stream.
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
"""Step in log time of the search for the window of the integral."""

_PANEL = 6.0
"""Longest piece of log time that is integrated by one Gauss-Legendre rule of `_NODES` nodes."""

_NODES = 64

_EXACT_UP_TO = 1_000_000
"""Largest product of k and the number of devices for which probabilities are exact. Beyond it they
would take a plan longer than ten seconds, so it gets approximate ones."""

_NUMBERS_AHEAD = 1024

_SMALLEST_EXPONENT = -700.0
"""exp of it is still a normal number."""


def inclusion_probabilities(weights: FloatArray, k: int) -> FloatArray:
    """The probability that each device is among the k drawn; the probabilities sum to k.

    Device i is drawn if fewer than k others arrive before it: ∫ w_i exp(−w_i t) P(fewer by t) dt,
    where the number of others that have arrived by t is Poisson-binomial with 1 − exp(−w_j t). The
    result is exact to about 1e-12. The time grows as n log n · k: a second for 1,000 devices and
    k = 100.

    Args:
        weights: > 0, shape (n,).
        k: number of devices drawn, at least 1.
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
    """Log times between which the k-th device arrives, except with a probability of 1e-15 · n."""
    first = math.log(1e-17 / weights.sum())
    last = math.log((40 + math.log(k + 1)) / np.sort(weights)[-k - 1])
    logs = np.linspace(first, last, math.ceil((last - first) / _SCAN) + 1)
    arrived = -np.expm1(-weights * np.exp(logs)[:, np.newaxis])
    counts = _joined(_nobody(len(logs), k + 1), arrived)
    begun = counts[:, :k].sum(axis=1) < 1 - 1e-15 * len(weights)
    within = np.flatnonzero(begun & (counts.sum(axis=1) > 1e-17))
    return float(logs[max(within[0] - 1, 0)]), float(logs[min(within[-1] + 1, len(logs) - 1)])


def effective_weights(weights: FloatArray, k: int) -> FloatArray:
    """The expected weight of each device in an unweighted mean over the drawn devices.

    p_i = Σ over draws A of q(A) 1{i in A} / |A| (agnostic FedAvg). The weights sum to 1.
    """
    return inclusion_probabilities(weights, k) / min(k, len(weights))


def _fewer_others(arrived: FloatArray, k: int) -> FloatArray:
    """The probability that fewer than k of the others have arrived, shape (instants, n).

    Args:
        arrived: the probability that each has, shape (instants, n).
    """
    found = np.empty_like(arrived)

    # Halve the range down to one device; `counts` is the distribution of how many devices outside
    # the range have arrived. Removing one device from the distribution of all would be quicker, but
    # is numerically unstable.
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
    """The distribution of a count below k that is certainly 0, for every instant; (instants, k)."""
    counts = np.zeros((instants, k))
    counts[:, 0] = 1.0
    return counts


def _joined(counts: FloatArray, arrived: FloatArray) -> FloatArray:
    """The distribution of a count after further devices are counted.

    Args:
        counts: distribution before, shape (instants, k). Probability of k or more is dropped.
        arrived: the probability that each further device has arrived, shape (instants, devices).
    """
    for here in arrived.T[:, :, np.newaxis]:
        more = counts * (1 - here)
        more[:, 1:] += counts[:, :-1] * here
        counts = more
    return counts


def _nearly_inclusion(weights: FloatArray, k: int) -> FloatArray:
    """Approximate inclusion probabilities, with a relative error of about 1 / (4k).

    The k-th device is assumed to arrive at the time by which k devices are expected.
    """
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
    def __init__(self, batch: DeviceBatch, k: int, log_weights: FloatArray) -> None:
        super().__init__(batch)
        self._k, self._log_weights = k, log_weights
        ahead = max(1, _NUMBERS_AHEAD // batch.size)
        self._draws = Numbers(batch.seed, ("k-of-n",), [batch.group], batch.size, ahead)

    def on(self, context: StepContext) -> BoolArray:
        with np.errstate(divide="ignore"):  # a device that draws 0 arrives at once
            noise = -np.log(-np.log1p(-self._draws.at(context.step)[0]))
        drawn = np.zeros(self.batch.size, dtype=np.bool_)
        drawn[np.argpartition(-self._log_weights - noise, self._k - 1)[: self._k]] = True
        return drawn[self.batch.positions]

    def chance(self, context: StepContext) -> FloatArray:
        return self._inclusion[self.batch.positions]

    @cached_property
    def _inclusion(self) -> FloatArray:
        exact = self._k * self.batch.size <= _EXACT_UP_TO
        found = inclusion_probabilities if exact else _nearly_inclusion
        return found(np.exp(self._log_weights), self._k)


class KOfN(Availability):
    """In every step exactly k of the group's devices are available.

    They are drawn one after the other without replacement, in proportion to the weights of the
    devices that are left. A device more or less in the group changes the draws of all devices.
    """

    k: DeviceCount
    """Number of devices that are available in a step."""

    weights: list[Positive] | None = None
    """A weight for every device of the group, in their order. If `weights` and `decay` are both
    absent, all weights are equal."""

    decay: Positive | None = None
    """Gives device i, counted from 0, the weight exp(−i / decay); use it instead of `weights`. The
    experiments of Convergence of Agnostic Federated Averaging have 100 devices, k = 10 and
    decay = 10."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.weights is not None and self.decay is not None:
            raise ValueError("weights and decay both say how likely devices are; leave one out")
        return self

    def process(self, batch: DeviceBatch) -> AvailabilityProcess:
        return _KOfN(batch, self.k, self._log_weights(batch.size))

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
