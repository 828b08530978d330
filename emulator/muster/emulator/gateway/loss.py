"""The effect of lost packets on a connection.

Acknowledgements of later packets tell a sender at once that a packet was lost. So within a burst,
loss mostly bounds the rate, and only some losses end in a time-out. Nothing follows the last packet
of a burst, so each loss of it ends in a time-out (RFC 8985). A small message is one such packet.
"""

import math

from muster.common import seeds
from muster.emulator.links.shape import Shape

PACKET_BYTES = 1460
"""Payload of a TCP packet over Ethernet: the MSS in the formulas below."""

_LEAST_RTT_S = 0.001
_LEAST_RTO_S = 0.2  # Linux's; RFC 6298 would have 1 s


class Loss:
    """The effect of lost packets on a TCP connection: a bound on its rate, and stalls.

    Padhye, Firoiu, Towsley, Kurose, Modeling TCP throughput, SIGCOMM 1998, equation 30 with b = 1
    and without the factor 1 + 32p² of repeated time-outs: a packet takes RTT·√(2p/3) in the long
    run, and RTO·min(1, 3·√(3p/8))·p for the time-outs.

    Args:
        share: p > 0, the share of packets that are lost.
    """

    def __init__(self, share: float, rtt_s: float) -> None:
        rtt_s = max(_LEAST_RTT_S, rtt_s)
        self.bound = PACKET_BYTES / (rtt_s * math.sqrt(2 * share / 3))
        """Bytes per second while the connection does not stall: Mathis et al., CCR 1997."""
        self.stall_ratio = share * min(1.0, 3 * math.sqrt(3 * share / 8))
        """Probability that a packet within a burst begins a stall."""
        self.share = share
        """Probability that the last packet of a burst begins a stall."""
        self.stall_s = max(_LEAST_RTO_S, 2 * rtt_s)
        """Duration of a stall, seconds."""

    def left_of(self, rate: float) -> float:
        """The part of a rate that remains with stalls in the long run, bytes per second."""
        return rate / (1 + rate * self.stalled_s_a_byte)

    @property
    def stalled_s_a_byte(self) -> float:
        """Seconds of stalls for each byte in the mean."""
        return self.stall_ratio * self.stall_s / PACKET_BYTES


class Stalls:
    """The stalls of a connection, drawn from a stream of its own."""

    def __init__(self, loss: Loss, seed: int, *name: str | int) -> None:
        self._loss = loss
        self._draws = seeds.stream(seed, *name)
        self._ahead = self._distance()

    def begun(self, nbytes: int, last: bool) -> int:
        """Number of stalls that `nbytes` more begin.

        Args:
            last: whether a burst ends with them, so that their last packet is its last.
        """
        lost = int(last and self._draws.random() < self._loss.share)
        self._ahead -= max(0, nbytes - PACKET_BYTES) if last else nbytes
        while self._ahead <= 0:
            lost += 1
            self._ahead += self._distance()
        return lost

    def _distance(self) -> int:
        return PACKET_BYTES * int(self._draws.geometric(self._loss.stall_ratio))


def packets_of(nbytes: int, last: bool) -> float:
    """Number of packets that carry `nbytes`. A burst that ends with them ends with a packet of its
    own, however small."""
    return 1 + max(0, nbytes - PACKET_BYTES) / PACKET_BYTES if last else nbytes / PACKET_BYTES


def loss_of(shape: Shape) -> Loss | None:
    """The effect of a shape's loss on a connection; None: there is no loss."""
    return Loss(shape.loss, shape.rtt_s) if shape.loss else None
