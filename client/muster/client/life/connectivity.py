"""How a device is connected: the settings, and the classes of networks that it can be in."""

import math
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import Field

from muster.common.config import Section

Share = Annotated[float, Field(ge=0, le=1)]


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


class Connectivity(Section):
    """How a device is connected: drawn every hour, by local time."""

    kind: Literal["fixed", "mobile"] = "fixed"
    """fixed: by cable, unmetered. mobile: by Wi-Fi or the mobile network."""

    wifi_at_home: Share = 0.95
    """mobile: probability of Wi-Fi in an hour from 19 to 8 local time. Assumption."""

    wifi_away: Share = 0.4
    """mobile: probability of Wi-Fi in the other hours. Assumption."""

    metered: bool | None = None
    """Whether traffic costs money. Absent: only on the mobile network."""
