"""Weights under utility constraints: which weights in the model make rational clients take part.

Client k has the utility u_k(r) = −a_k·r² + b_k·r + c_k of its weight r, with a_k > 0, and leaves
below its threshold γ_k. There are N clients.

Yashwanth et al., Federated Learning by Utility-Constrained Stochastic Aggregation for Improving
Rational Participation, 2026. https://arxiv.org/abs/2605.18020
"""

from typing import Final, NamedTuple

import numpy as np

from muster.common.seeds import BoolArray, FloatArray

ROUNDING: Final = 1e-9
"""By how much weights may exceed the sum 1, because thresholds that are utilities of a weight are
rounded."""

_HALVINGS = 60
"""Halvings of an interval of weights, after which its ends are neighbouring floats."""


class Utilities(NamedTuple):
    """The utilities of N clients; arrays of shape (N,).

    Attributes:
        threshold: γ.
    """

    a: FloatArray
    b: FloatArray
    c: FloatArray
    threshold: FloatArray

    def at(self, weights: FloatArray) -> FloatArray:
        """u_k(r) at weights r of shape (…, N)."""
        values: FloatArray = (self.b - self.a * weights) * weights + self.c
        return values

    def intervals(self) -> tuple[FloatArray, FloatArray]:
        """The smallest and the largest weight in [0, 1] at which each client stays, each of shape
        (N,); NaN if there is none.

        Clients stay at these weights also by the rounded arithmetic of `at`, because a threshold is
        often the utility of a weight itself. They are therefore found by bisection.
        """
        with np.errstate(over="ignore"):  # infinity is outside [0, 1], as the number would be
            best = np.clip(self.b / (2 * self.a), 0.0, 1.0)
        ends = self._last_staying(best, 0.0), self._last_staying(best, 1.0)
        fine = stays(self, best)
        low, high = (np.where(fine, end, np.nan) for end in ends)
        return low, high

    def _last_staying(self, inside: FloatArray, end: float) -> FloatArray:
        """The weight nearest to `end` at which each client stays, if it stays at `inside`."""
        outside = np.full_like(inside, end)
        inside = np.where(stays(self, outside), outside, inside)
        for _ in range(_HALVINGS):
            middle = (inside + outside) / 2
            staying = stays(self, middle)
            inside = np.where(staying, middle, inside)
            outside = np.where(staying, outside, middle)
        return inside


def stays(utilities: Utilities, weights: FloatArray) -> BoolArray:
    """Whether each client stays with these weights, shape (N,)."""
    return np.asarray(utilities.at(weights) >= utilities.threshold)


def most_satisfied(utilities: Utilities) -> int:
    """The largest number of clients that some weights, ≥ 0 with a sum of at most 1, can keep."""
    return int(np.count_nonzero(satisfiable(utilities)))


def satisfiable(utilities: Utilities) -> BoolArray:
    """The largest set of clients that some weights, ≥ 0 with a sum of at most 1, can keep, shape
    (N,). It takes O(N log N) steps and no solver.

    Client k needs a weight in its interval, so at least the interval's beginning. Taking clients by
    ascending beginnings while their sum is at most 1 keeps the most.
    """
    low, _ = utilities.intervals()
    order = np.argsort(low, kind="stable")  # NaN, for clients that nothing keeps, comes last
    chosen = np.zeros(len(low), dtype=bool)
    chosen[order] = np.cumsum(low[order]) <= 1 + ROUNDING  # a comparison with NaN is false
    return chosen


def keeping_most(utilities: Utilities) -> FloatArray:
    """Weights that keep the largest number of clients, >= 0 with a sum of at most 1, shape (N,).

    Of all such weights these are the nearest to equal ones: every client of the largest set has a
    weight in its interval, every other one a weight in [0, 1], and ‖α − 1/N‖² is as small as it can
    be. So the models of all clients count as equally as the intervals allow. The sum is less than 1
    only if all clients are in the set and none may have more.
    """
    low, high = utilities.intervals()
    chosen = satisfiable(utilities)
    least, most = np.where(chosen, low, 0.0), np.where(chosen, high, 1.0)
    equal = 1 / len(low)
    # The nearest weights are 1/N + shift, clipped to the intervals; their sum grows with the shift.
    below, above = -1.0, 1.0
    for _ in range(_HALVINGS):
        shift = (below + above) / 2
        if np.clip(equal + shift, least, most).sum() <= 1:
            below = shift
        else:
            above = shift
    return np.asarray(np.clip(equal + below, least, most))


def for_one(
    utilities: Utilities, strategies: int, draws: np.random.Generator, among: BoolArray
) -> tuple[FloatArray, int | None]:
    """Weights that keep one client, drawn among those that can be kept (the paper's fallback).

    Args:
        strategies: n_s; the client gets at most n_s/N.
        among: the clients that may be drawn, shape (N,).

    Returns:
        The weights, shape (N,), and the position of the client. If no client can be kept, the
        weights are equal and there is none.
    """
    a, b, _, _ = utilities
    low, high = utilities.intervals()
    clients, most = len(a), strategies / len(a)
    possible = np.flatnonzero(among & (low <= most))  # a comparison with NaN is false
    if not len(possible):
        return np.full(clients, 1 / clients), None
    chosen = int(draws.choice(possible))
    best = b[chosen] / (2 * a[chosen])
    weight = float(np.clip(best, low[chosen], min(high[chosen], most)))
    others = (1 - weight) / (clients - 1) if clients > 1 else 0.0
    weights = np.full(clients, others)
    weights[chosen] = weight
    return weights, chosen
