"""What the papers' methods come to, exactly: shares of who takes part, fixed points, gaps."""

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
    """Devices that are active only when something happens to their group, in a round.

    Attributes:
        size: devices; 0 is allowed.
        probability: that it happens.
        device_probability: of each device being active when it does, apart from the others.
        slots: devices of the group that can transfer in a round, M_max; None: all.
        overflow: what becomes of more active devices than slots: collide, and nobody gets through;
            subset, and as many as there are slots do, each set equally likely.
    """

    size: int
    probability: float
    device_probability: float
    slots: int | None = None
    overflow: Literal["collide", "subset"] = "collide"

    def successes(self) -> FloatArray:
        """The distribution of how many get through, shape (size + 1,)."""
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
    """c = E[1{m in S} / |S|] of a device of each group, and the probability that S is empty.

    S are the devices that get through; a round in which nobody does counts as 0, so that
    Σ size · c = 1 − P(empty). Groups are independent. Correlated participation, equation (6), for
    the activities of equation (13).

    Returns:
        c of any one device, shape (groups,), 0 in a group without devices; P(empty).
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
    """p_i = Σ q(A) 1{i in A} / |A| over the draws A of k devices without replacement, by going
    through every order in which they can be drawn: `effective_weights` for a few devices.

    Agnostic FedAvg, where each draw is in proportion to the weights of those that are left.

    Args:
        weights: > 0, shape (n,).
        k: of n, at least 1; there are n! / (n − k)! orders.

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
    """‖p − 1/N‖₁: how far shares are from equal ones; from 0 to 2 − 2/N."""
    p = np.asarray(shares, dtype=np.float64)
    return float(np.abs(p - 1 / len(p)).sum())


def fixed_point(weights: Sequence[float] | FloatArray, minimisers: FloatArray) -> FloatArray:
    """Where Σ w_i·f_i is least, for f_i = ½ μ ‖θ − b_i‖² of one curvature μ: the weighted mean.

    Args:
        weights: w, >= 0, up to a factor, shape (n,).
        minimisers: b, shape (n,) or (n, parameters).
    """
    w = np.asarray(weights, dtype=np.float64)
    return np.asarray(w @ minimisers / w.sum())


class TwoClients(NamedTuple):
    """The instance of Proposition E.1 of FedIPW: f = ½ μ (θ ∓ a)², a = G/μ.

    Attributes:
        minimisers: a and −a.
        relative_weights: ρ = 1 ± ε: p_i / p̂_i over their mean.
        enrollment: propensities that leave these weights to a rule that corrects for participation
            alone; the larger is 1.
        limit: where such a rule ends; the optimum is 0.
        gap: F(limit) − F(0), from the definition of F.
        promised: ½ ε²G²/μ. The statement of the proposition has ⅛, its proof this.
    """

    minimisers: FloatArray
    relative_weights: FloatArray
    enrollment: FloatArray
    limit: float
    gap: float
    promised: float


def prop_e1(epsilon: float, heterogeneity: float = 1.0, curvature: float = 1.0) -> TwoClients:
    """Two clients of which weights that are wrong by ε make a gap of order ε²G²/μ.

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
