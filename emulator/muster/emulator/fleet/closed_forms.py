"""Closed forms from the papers: exact participation shares, fixed points and gaps."""

from collections.abc import Sequence
from itertools import permutations
from typing import Literal, NamedTuple

import numpy as np

from muster.client.availability.k_of_n import effective_weights
from muster.common.seeds import FloatArray

__all__ = [
    "EventGroup",
    "TwoClients",
    "effective_weights",
    "fixed_point",
    "prop_e1",
    "shares_by_enumeration",
    "shares_of_groups",
    "skew",
]


class EventGroup(NamedTuple):
    """A group whose devices are active in a round only if an event happens to the group.

    Attributes:
        size: number of devices; 0 is allowed.
        probability: probability of the event.
        device_probability: probability that a device is active if the event happens,
            independently of the other devices.
        slots: number of devices of the group that can transfer in a round, M_max; None: all.
        overflow: what happens if more devices are active than there are slots. With `collide`, no
            device gets through. With `subset`, as many get through as there are slots, and each
            such set is equally likely.
    """

    size: int
    probability: float
    device_probability: float
    slots: int | None = None
    overflow: Literal["collide", "subset"] = "collide"

    def successes(self) -> FloatArray:
        """Distribution of the number of devices that get through, shape (size + 1,)."""
        active = np.ones(1)
        for _ in range(self.size):
            active = np.convolve(active, [1 - self.device_probability, self.device_probability])
        through = self.probability * active
        through[0] += 1 - self.probability
        if self.slots is not None and self.slots < self.size:
            too_many = through[self.slots + 1 :].sum()
            through[self.slots + 1 :] = 0.0
            through[0 if self.overflow == "collide" else self.slots] += too_many
        return through


def shares_of_groups(groups: Sequence[EventGroup]) -> tuple[FloatArray, float]:
    """The share c = E[1{m in S} / |S|] of a device m of each group, and the probability that S is
    empty.

    S is the set of devices that get through. A round in which no device does counts as 0, so that
    Σ size · c = 1 − P(empty). Groups are independent. This is equation (6) of Correlated
    participation for the activities of equation (13).

    Returns:
        c of any one device of a group, shape (groups,), 0 in a group without devices; P(empty).
    """
    through = [group.successes() for group in groups]
    shares = np.zeros(len(groups))
    for place, (group, own) in enumerate(zip(groups, through, strict=True)):
        others = np.ones(1)
        for other in through[:place] + through[place + 1 :]:
            others = np.convolve(others, other)
        count = np.arange(len(others))
        for mine in range(1, group.size + 1):
            shares[place] += own[mine] * mine / group.size * (others / (mine + count)).sum()
    return shares, float(np.prod([own[0] for own in through]))


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
        relative_weights: ρ = 1 ± ε: p_i / p̂_i over their mean.
        enrollment: enrollment propensities with which a rule that corrects only for participation
            ends up with these weights; the larger is 1.
        limit: the point to which such a rule converges; the optimum is 0.
        gap: F(limit) − F(0), from the definition of F.
        promised: ½ ε²G²/μ. The statement of the proposition has the factor ⅛, its proof has ½.
    """

    minimisers: FloatArray
    relative_weights: FloatArray
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
    return TwoClients(minimisers, rho, rho / rho.max(), limit, gap, promised)
