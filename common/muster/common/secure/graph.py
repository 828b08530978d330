"""Which devices exchange keys, and how many of them can open a sum.

Every device shares its secrets with k neighbours and itself. With few devices all are neighbours
(Bonawitz et al. 2017). With many, a device has k neighbours on a ring in random order (Bell et al.
2020), with k and the threshold so that each of these has a probability below 2^-40, or 2^-20 for
the last one:

- so many neighbours of any device collude that, with a server that tells each of them something
  else, they can open its own pad and its pads with others;
- devices that collude or drop out cut the ring;
- so many neighbours of any device drop out that the sum cannot be opened.
"""

import math
from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Final, NamedTuple

SECURITY_BITS: Final = 40
CORRECTNESS_BITS: Final = 20

LEAST: Final = 3
"""The fewest devices of a sum. With two, each could compute the other's update from the sum."""


class Sharing(NamedTuple):
    """How the devices of a sum share their secrets.

    Attributes:
        neighbours: of each device.
        threshold: shares that give a secret back, of those of the neighbours and the device itself.
    """

    neighbours: int
    threshold: int


@cache
def sharing_of(devices: int, drop_out: float, collusion: float) -> Sharing:
    """The fewest neighbours for a number of devices, and the threshold.

    Args:
        drop_out, collusion: shares of the devices that may drop out, and collude with the server.
    """
    dropping, colluding = math.ceil(drop_out * devices), math.floor(collusion * devices)
    most = devices * 2.0**SECURITY_BITS, devices * 2.0**CORRECTNESS_BITS
    for neighbours in range(4, devices - 1, 2):
        if (drop_out + collusion) ** (neighbours / 2) * most[0] > 1:
            continue
        for threshold in range(neighbours // 2 + 1, neighbours + 1):
            # Honest neighbours give one kind of share, those that collude both.
            both = 2 * threshold - neighbours - 1
            if _tail(devices - 1, colluding, neighbours, both) * most[0] > 1:
                continue
            too_many = neighbours - threshold + 1
            if _tail(devices - 1, dropping, neighbours, too_many) * most[1] <= 1:
                return Sharing(neighbours, threshold)
            break
    return Sharing(devices - 1, (devices + colluding) // 2 + 1)


def too_few_stay(devices: int, sharing: Sharing, drop_out: float) -> float:
    """The probability that a sum cannot be opened, if each device drops out with the probability
    `drop_out`, independently of others; an upper bound if not all devices are neighbours."""
    holders = sharing.neighbours + 1
    fails = sum(
        math.comb(holders, stay) * (1 - drop_out) ** stay * drop_out ** (holders - stay)
        for stay in range(sharing.threshold)
    )
    return min(1.0, fails * (1 if holders == devices else devices))


def _tail(population: int, marked: int, drawn: int, least: int) -> float:
    """The probability that at least `least` of `drawn` are marked, without replacement."""
    counts = range(max(least, 0), min(marked, drawn) + 1)
    ways = (math.comb(marked, n) * math.comb(population - marked, drawn - n) for n in counts)
    return sum(ways) / math.comb(population, drawn)


def neighbours_of(devices: Sequence[int], neighbours: int, random: Random) -> dict[int, list[int]]:
    """The neighbours of every device: on a ring in random order, as many on both sides, or all."""
    if neighbours >= len(devices) - 1:
        return {device: [other for other in devices if other != device] for device in devices}
    ring = list(devices)
    random.shuffle(ring)
    steps = [*range(-neighbours // 2, 0), *range(1, neighbours // 2 + 1)]
    return {
        device: sorted(ring[(at + step) % len(ring)] for step in steps)
        for at, device in enumerate(ring)
    }
