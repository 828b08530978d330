"""Models of links: the modelled seconds of transfers, from nominal rates and without a network.

In lockstep these seconds decide which devices met a deadline. The real duration of a transfer over
TCP is measured too, but decides nothing.
"""

import math
from collections.abc import Collection, Mapping
from typing import Annotated, Literal

from pydantic import Field

from muster.common import seeds
from muster.common.config import Section

Overflow = Literal["queue", "collide", "subset"]

Positive = Annotated[float, Field(gt=0)]


class LinkModel(Section):
    """The model of a device's link."""

    down_bps: Positive | None = None
    """Bits per second towards the device. Absent: no limit."""

    up_bps: Positive | None = None
    """Bits per second from the device. Absent: no limit."""

    rtt_s: Annotated[float, Field(ge=0)] = 0.0
    """Round-trip time of a small message in seconds."""

    def down_s(self, bytes_down: float) -> float:
        """Seconds in which a device receives `bytes_down`."""
        return 8 * bytes_down / self.down_bps if self.down_bps else 0.0

    def up_s(self, bytes_up: float) -> float:
        """Seconds in which a device sends `bytes_up`."""
        return 8 * bytes_up / self.up_bps if self.up_bps else 0.0

    def transfer_s(self, bytes_down: float, bytes_up: float) -> float:
        """Seconds of a round's two transfers: bytes over rate, plus a round trip for each."""
        return self.down_s(bytes_down) + self.up_s(bytes_up) + 2 * self.rtt_s

    @property
    def under_way_bytes(self) -> float:
        """Bytes under way when the faster direction is full: rate times round-trip time."""
        return max(self.down_bps or 0.0, self.up_bps or 0.0) * self.rtt_s / 8

    def patience_s(self, bytes_in_flight: float) -> float:
        """Seconds after which a silent peer may be considered dead.

        They cover the bytes that may be in flight ahead of the peer's next message, at half the
        rate, and some round trips, so that a slow upload does not count as a death.
        """
        slower = min(self.down_bps or math.inf, self.up_bps or math.inf)
        return 2 * 8 * bytes_in_flight / slower + 4 * self.rtt_s


class SharedLine(Section):
    """The model of the link that all devices of a group share."""

    down_bps: Positive | None = None
    up_bps: Positive | None = None

    slots: Annotated[int, Field(gt=0)] | None = None
    """Number of devices that can transfer in a round (at once, with overflow "queue"). Absent:
    all."""

    overflow: Overflow = "queue"
    """What happens if more devices than slots want to transfer."""

    @property
    def delays(self) -> bool:
        """Whether devices of the group can make one another slower."""
        limited = self.down_bps is not None or self.up_bps is not None
        return limited or (self.slots is not None and self.overflow == "queue")

    def extra_s(
        self, line: LinkModel, bytes_down: float, bytes_up: float, rank: int, n: int
    ) -> float:
        """Modelled seconds that sharing the link adds to a device's transfers.

        The rate is divided equally among the devices that transfer at once. With queueing slots
        devices take turns in the order of `rank`, `slots` at a time.

        Args:
            rank: rank of the device among those that transfer in the round, from 0.
            n: number of devices that transfer in the round.
        """
        queueing = self.slots is not None and self.overflow == "queue"
        turn, at_once = 1, n
        if queueing:
            assert self.slots is not None
            turn, at_once = rank // self.slots + 1, min(n, self.slots)
        down = SharedLine._at(line.down_bps, self.down_bps, at_once)
        up = SharedLine._at(line.up_bps, self.up_bps, at_once)
        together = LinkModel(down_bps=down, up_bps=up, rtt_s=line.rtt_s)
        return turn * together.transfer_s(bytes_down, bytes_up) - line.transfer_s(
            bytes_down, bytes_up
        )

    def least(self, line: LinkModel, at_once: int) -> LinkModel:
        """The link of a device when `at_once` devices of the group transfer; decides timeouts."""
        if self.slots is not None and self.overflow == "queue":
            at_once = min(at_once, self.slots)
        down = SharedLine._at(line.down_bps, self.down_bps, at_once)
        up = SharedLine._at(line.up_bps, self.up_bps, at_once)
        return LinkModel(down_bps=down, up_bps=up, rtt_s=line.rtt_s)

    @staticmethod
    def _at(own: float | None, shared: float | None, at_once: int) -> float | None:
        fair = shared / at_once if shared else None
        return min(own, fair) if own and fair else own or fair


def turns(seed: int, group: str, round: int, clients: Collection[str]) -> list[str]:
    """The order in which the devices of a group that contend in a round get slots.

    It is drawn from a stream of its own, so the gateway that grants slots, a plan and the server
    compute the same order.
    """
    ordered = sorted(clients)
    drawn = seeds.stream(seed, "slots", group, round).permutation(len(ordered))
    return [ordered[place] for place in drawn]


def extra_seconds(
    shared: SharedLine,
    seed: int,
    group: str,
    round: int,
    lines: Mapping[str, LinkModel],
    bytes_down: float,
    bytes_up: float,
) -> dict[str, float]:
    """Modelled seconds that sharing adds to the transfers of each device in a round.

    Args:
        lines: link models of the devices that transfer in the round, by client.
    """
    order = turns(seed, group, round, lines)
    return {
        client: shared.extra_s(lines[client], bytes_down, bytes_up, rank, len(order))
        for rank, client in enumerate(order)
    }


def granted(
    shared: SharedLine, seed: int, group: str, round: int, active: Collection[str]
) -> frozenset[str]:
    """The active devices of a group that are granted a slot in a round.

    If there are more active devices than slots, the overflow rule decides. collide: no device is
    granted one (the literal reading of M_max in the correlated-participation paper). subset: as
    many devices as there are slots are drawn. queue: all devices are granted one.
    """
    if shared.slots is None or shared.overflow == "queue" or len(active) <= shared.slots:
        return frozenset(active)
    if shared.overflow == "collide":
        return frozenset()
    return frozenset(turns(seed, group, round, active)[: shared.slots])
