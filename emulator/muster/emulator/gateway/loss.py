"""The effect of lost packets on a connection.

Acknowledgements of later packets tell a sender at once that a packet was lost. So within a burst of
traffic, loss mostly bounds the rate, and only some losses end in a time-out. Nothing follows the
last packet, so each loss of it ends in a time-out (RFC 8985). A small message is one such packet.

Packets are lost as in the model of Gilbert (Bell System Technical Journal, 1960): all in a bad
state, none in a good one. If a share p is lost, b in a row in the mean, then a packet after one
that arrived is lost with probability p / (b·(1 − p)). Independent losses have b = 1 / (1 − p), so
that this is p. A time-out is long beside a bad state of some packets, so a packet that is sent
again after it is lost with probability p.
"""

import math
from typing import NamedTuple

from muster.common import seeds
from muster.common.rates.recording import Direction
from muster.emulator.links.shape import Shape

PACKET_BYTES = 1460
"""Payload of a TCP packet over Ethernet: the MSS in the formulas below."""

_LEAST_RTT_S = 0.001
_LEAST_RTO_S = 0.2  # Linux's; RFC 6298 would have 1 s
_MOST_DOUBLINGS = 6
"""A time-out is doubled so often when its packet is lost again and again, as in the paper below."""


def least_timeout_s(rtt_s: float) -> float:
    """The retransmission time-out of a connection, seconds."""
    return max(_LEAST_RTO_S, 2 * max(_LEAST_RTT_S, rtt_s))


class Loss:
    """The effect of lost packets on a TCP connection: a bound on its rate, and stalls.

    Padhye, Firoiu, Towsley, Kurose, Modeling TCP throughput, SIGCOMM 1998, equation 30 with b = 1:
    a packet takes RTT·√(2p/3) in the long run, and p·Q·T for the time-outs, where
    Q = min(1, 3·√(3p/8)), T is the mean duration of a sequence of time-outs, and p is the
    probability of a packet after one that arrived. If losses come in a row, a run that leaves fewer
    than three packets of the window ends in a time-out, too.

    Args:
        share: p > 0, the share of packets that are lost.
        run: mean number of packets that are lost in a row; less than independent losses have counts
            as independent.
    """

    def __init__(self, share: float, rtt_s: float, run: float = 1.0) -> None:
        rtt_s, run = max(_LEAST_RTT_S, rtt_s), max(run, 1 / (1 - share))
        first = share / (run * (1 - share))
        self.bound = PACKET_BYTES / (rtt_s * math.sqrt(2 * first / 3))
        """Bytes per second while the connection does not stall: Mathis et al., CCR 1997."""
        window = math.sqrt(8 / (3 * first))
        whole = (1 - 1 / run) ** max(1.0, window - 3) if run > 1 / (1 - share) else 0.0
        self.stall_ratio = first * (1 - (1 - min(1.0, 3 / window)) * (1 - whole))
        """Probability that a packet within a burst of traffic begins a stall."""
        self.share = share
        """Probability that the last packet of a burst of traffic begins a stall."""
        self.stall_s = least_timeout_s(rtt_s)
        """Duration of the shortest stall, one time-out, seconds."""

    @property
    def mean_stall_s(self) -> float:
        """Mean duration of a stall, seconds."""
        doubled = 1 + math.fsum(2**n * self.share ** (n + 1) for n in range(_MOST_DOUBLINGS))
        return self.stall_s * doubled / (1 - self.share)

    @property
    def long_stall_s(self) -> float:
        """A duration that one of ten thousand stalls exceeds, seconds."""
        return self.stall_s * _span(math.ceil(math.log(1e-4) / math.log(self.share)))

    def left_of(self, rate: float) -> float:
        """The part of a rate that remains with stalls in the long run, bytes per second."""
        return rate / (1 + rate * self.stalled_s_a_byte)

    @property
    def stalled_s_a_byte(self) -> float:
        """Seconds of stalls for each byte in the mean."""
        return self.stall_ratio * self.mean_stall_s / PACKET_BYTES


def _span(losses: int) -> float:
    """How many time-outs a packet is late that was lost so often in a row: 1, 3, 7, …"""
    doubled = min(losses, _MOST_DOUBLINGS + 1)
    return 2.0**doubled - 1 + max(0, losses - doubled) * 2.0**_MOST_DOUBLINGS


class Begun(NamedTuple):
    """Stalls that some bytes have begun: their number, and how long they last together."""

    stalls: int
    seconds: float


class Stalls:
    """The stalls of a connection, drawn from a stream of its own."""

    def __init__(self, loss: Loss, seed: int, *name: str | int) -> None:
        self._loss = loss
        self._draws = seeds.stream(seed, *name)
        self._again = seeds.stream(seed, *name, "again")
        self._ahead = self._distance()

    def begun(self, nbytes: int, last: bool) -> Begun:
        """The stalls that `nbytes` more begin.

        Args:
            last: whether a burst ends with them, so that their last packet is its last.
        """
        lost = int(last and self._draws.random() < self._loss.share)
        self._ahead -= max(0, nbytes - PACKET_BYTES) if last else nbytes
        while self._ahead <= 0:
            lost += 1
            self._ahead += self._distance()
        return Begun(lost, math.fsum(self._seconds() for _ in range(lost)))

    def _distance(self) -> int:
        return PACKET_BYTES * int(self._draws.geometric(self._loss.stall_ratio))

    def _seconds(self) -> float:
        return self._loss.stall_s * _span(int(self._again.geometric(1 - self._loss.share)))


def packets_of(nbytes: int, last: bool) -> float:
    """Number of packets that carry `nbytes`. A burst that ends with them ends with a packet of its
    own, however small."""
    return 1 + max(0, nbytes - PACKET_BYTES) / PACKET_BYTES if last else nbytes / PACKET_BYTES


def loss_of(shape: Shape, direction: Direction) -> Loss | None:
    """The effect of a shape's loss on a connection in a direction; None: there is no loss."""
    share = shape.loss_of(direction)
    return Loss(share, shape.rtt_s, shape.loss_burst) if share else None
