"""One device's link at its gateway: its shape, faults, connections and counters."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from muster.common.rates.recording import DIRECTIONS, Direction
from muster.emulator.gateway.config import GatewayDevice
from muster.emulator.gateway.faults import ActiveFaults
from muster.emulator.gateway.flows import DirectionalLink
from muster.emulator.gateway.loss import PACKET_BYTES, loss_of
from muster.emulator.gateway.rates import Rate, rate_of
from muster.emulator.gateway.shaping import Shaper
from muster.emulator.gateway.windows import SlowStart
from muster.emulator.links.shape import Shape


class TrafficMeter:
    """Measures how many bytes one connection could have carried over a link since the gateway
    began, across all changes of its rate."""

    def __init__(self, rate: Rate) -> None:
        self._rate, self._since, self._before = rate, 0.0, 0.0

    def change(self, rate: Rate, now: float) -> None:
        self._before += self._rate.capacity(self._since, now)
        self._rate, self._since = rate, now

    def bytes(self, now: float) -> float | None:
        """Bytes until `now`; None: at some time there was no limit."""
        total = self._before + self._rate.capacity(self._since, now)
        return None if math.isinf(total) else total


class DeviceLink:
    """A device's link, with its faults and counters.

    Attributes:
        plain: by direction, whether bytes bypass the shaper.
        fitted: whether the buffer size of one of its sockets has been set.
        struck: how often a fault has struck one of its connections, established or new.
        quota_from: by direction, the bytes that it had delivered when its quota began.
    """

    def __init__(
        self,
        settings: GatewayDevice,
        seed: int,
        shapers: Mapping[Direction, Shaper],
        path: Sequence[str] = (),
    ) -> None:
        self.client, self.initial_shape, self.shape = (
            settings.client,
            settings.shape,
            settings.shape,
        )
        self._seed = seed
        self.active_faults = ActiveFaults()
        self.read = dict.fromkeys(DIRECTIONS, 0)
        self.delivered = dict.fromkeys(DIRECTIONS, 0)
        links = self.links(self.shape)
        self.lanes = {
            each: shapers[each].lane(self.client, links[each], path) for each in DIRECTIONS
        }
        self.meters = {each: TrafficMeter(self.rate(each)) for each in DIRECTIONS}
        self.plain = dict.fromkeys(DIRECTIONS, True)
        self.fitted = False
        self.struck = 0
        self.quota_from = dict.fromkeys(DIRECTIONS, 0)
        self.update_plain(shapers)

    def links(self, shape: Shape) -> dict[Direction, DirectionalLink]:
        """The link of both directions for a shape.

        Raises:
            ValueError: a trace cannot be read.
        """
        window = shape.initial_window
        start = SlowStart(PACKET_BYTES * window, shape.rtt_s) if window and shape.rtt_s else None
        return {
            each: DirectionalLink(
                rate=rate_of(shape, each, self._seed, self.client, bounded=False),
                delay_s=shape.delay_s(each),
                jitter_s=shape.jitter_s,
                jitter=shape.jitter_distribution,
                loss=loss_of(shape, each),
                queue_bytes=shape.queue_bytes(each),
                fifo=shape.queueing == "fifo",
                slow_start=start,
            )
            for each in DIRECTIONS
        }

    def rate(self, direction: Direction) -> Rate:
        """The rate of one connection over the link without stalls."""
        return rate_of(self.shape, direction, self._seed, self.client)

    def update_plain(self, shapers: Mapping[Direction, Shaper]) -> None:
        """Update whether bytes may bypass the shaper."""
        for each in DIRECTIONS:
            lane = self.lanes[each]
            unshared = math.isinf(shapers[each].shared.mean) and not lane.path
            self.plain[each] = lane.link.plain and unshared and not self.active_faults

    def stats(self, now: float) -> dict[str, dict[str, Any]]:
        """What the link has measured in each direction."""
        return {
            each: {
                "bytes": self.delivered[each],
                "capacity": self.meters[each].bytes(now),
                "delays": self.lanes[each].delays.stats(),
                "stalls": self.lanes[each].stalls,
                "stalled_s": self.lanes[each].stalled_s,
                "packets": self.lanes[each].packets,
            }
            for each in DIRECTIONS
        }

    def rate_bytes(self, direction: Direction) -> float:
        """Mean rate of the device's own link, bytes per second."""
        return self.lanes[direction].link.rate.mean
