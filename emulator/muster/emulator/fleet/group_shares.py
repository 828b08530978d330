"""Exact participation shares of groups whose devices come together or not at all."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from muster.common.seeds import FloatArray


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
