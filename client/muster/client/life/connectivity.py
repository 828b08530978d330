"""The classes of connectivity that a device can have."""

import math
from typing import Final, NamedTuple


class NetworkKind(NamedTuple):
    """A class of connectivity.

    Attributes:
        down_mbps, up_mbps: nominal rates. They decide how long the radio is busy with a transfer if
            the scenario emulates no link.
    """

    name: str
    metered: bool
    down_mbps: float
    up_mbps: float


NETWORKS: Final = (
    NetworkKind("ethernet", metered=False, down_mbps=math.inf, up_mbps=math.inf),
    # Medians of FLASH's phones (speed_distri.json).
    NetworkKind("wifi", metered=False, down_mbps=35.0, up_mbps=27.0),
    # Down as in WebPageTest's LTE profile, up as in Mahimahi's LTE traces.
    NetworkKind("cellular", metered=True, down_mbps=12.0, up_mbps=6.0),
)
ETHERNET, WIFI, CELLULAR = range(len(NETWORKS))
