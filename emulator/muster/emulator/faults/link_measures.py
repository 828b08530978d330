"""What gateways measure of links, read from their statistics."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from muster.common.rates.recording import DIRECTIONS, Direction
from muster.emulator.gateway.loss import PACKET_BYTES

_LEAST_S = 0.1
"""Shortest time over which a rate is measured."""

_COUNTS = "bytes", "stalls", "packets"
"""What a gateway counts in each direction."""

_LEAST_PIECES = 8
"""Smallest number of pieces of bytes from which jitter is measured."""


class LinkMeasures(NamedTuple):
    """What a gateway has measured of a link. "Lately" means since the link changed last.

    Attributes:
        struck: how often a fault has struck one of its connections.
        struck_lately: how often lately.
        bytes_lately: bytes that were delivered lately, in both directions together.
        bps: the rate of each direction at which it could deliver over the last 0.1 s or more, bits
            per second; a direction is missing if it has no rate, or nobody has looked for long
            enough.
        round_trip_s: the least delays of both directions together, lately; None: nothing passed.
        excess_s: by how much the upper quartile of the delays lately is above the least one, in the
            direction with more of it; None: less than 8 pieces passed in each direction.
        stalls: stalls for lost packets that have begun lately.
        packets: number of packets that could be lost lately; 0 without loss.
    """

    struck: int
    struck_lately: int
    bytes_lately: int
    bps: Mapping[Direction, float]
    round_trip_s: float | None
    excess_s: float | None
    stalls: int
    packets: float

    @property
    def stalls_a_packet(self) -> float | None:
        """Stalls for lost packets lately, per packet; None: nothing passed."""
        packets = max(self.packets, self.bytes_lately / PACKET_BYTES)
        return self.stalls / packets if packets else None


class _Count:
    """A count that goes on if its gateway is started again, and its part since a moment."""

    def __init__(self) -> None:
        self.total = self.lately = self._before = 0.0
        self._fresh = True

    def read(self, now: float, anew: bool) -> None:
        """Read the count of a gateway.

        Args:
            anew: whether the gateway began to count at 0 since the last read.
        """
        more = now - (0 if anew else self._before)
        self.total += more
        self.lately = 0 if self._fresh else self.lately + more
        self._before, self._fresh = now, False

    def begin_again(self) -> None:
        self.lately, self._fresh = 0, True


class MeasuredRates:
    """Measures the rates of a link from what it could have delivered.

    Attributes:
        bps: as in LinkMeasures.
    """

    def __init__(self) -> None:
        self.bps: dict[Direction, float] = {}
        self._since: dict[Direction, tuple[float, float]] = {}

    def begin_again(self) -> None:
        self.bps, self._since = {}, {}

    def read(self, at: float, stats: Mapping[str, Any]) -> None:
        """Read the statistics of an instant, which have each direction."""
        for way in DIRECTIONS:
            if (capacity := stats[way]["capacity"]) is None:
                continue
            since, before = self._since.get(way, (at, capacity))
            if at - since >= _LEAST_S:
                self.bps[way] = 8 * (capacity - before) / (at - since)
                since, before = at, capacity
            self._since[way] = since, before


class LinkMeter:
    """Reads the statistics of one link."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._counts = {name: _Count() for name in ("struck", *_COUNTS)}
        self._rates = MeasuredRates()

    def begin_again(self) -> None:
        """Forget what was measured lately, because the link changes."""
        self._rates.begin_again()
        for count in self._counts.values():
            count.begin_again()

    def read(self, at: float, began: float, stats: Mapping[str, Any]) -> LinkMeasures:
        """Read the statistics of an instant.

        Args:
            began: when the gateway began.
        """
        anew = began != self._began  # another process, which counts from 0
        if anew:
            self._began = began
            self.begin_again()
        ways = [stats[way] for way in DIRECTIONS]
        now = {name: sum(way[name] for way in ways) for name in _COUNTS}
        for name, count in self._counts.items():
            count.read({**now, "struck": stats["struck"]}[name], anew)
        self._rates.read(at, stats)
        struck, passed, stalls, packets = self._counts.values()
        delays = [way["delays"] for way in ways]
        return LinkMeasures(
            round(struck.total),
            round(struck.lately),
            round(passed.lately),
            dict(self._rates.bps),
            _round_trip(delays),
            _excess(delays),
            round(stalls.lately),
            packets.lately,
        )


def _round_trip(delays: list[dict[str, Any]]) -> float | None:
    if not all(each["pieces"] for each in delays):
        return None
    return float(sum(each["least_s"] for each in delays))


def _excess(delays: list[dict[str, Any]]) -> float | None:
    found = [
        each["quartile_s"] - each["least_s"] for each in delays if each["pieces"] >= _LEAST_PIECES
    ]
    return max(found) if found else None
