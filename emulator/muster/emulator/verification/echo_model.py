"""Computes how long echoes should have taken over a link that varies.

The link's rates are functions of time that follow from its shape and the seed, so they are computed
here again for the instants at which echoes were sent. The gateway tells two things: its clock, and
for how long connections have stalled because of loss.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from muster.common.rates.recording import DIRECTIONS, Direction
from muster.emulator.gateway.rates import rate_of
from muster.emulator.verification.measuring import EchoSample, MeasuredLink
from muster.emulator.verification.reflector import ECHO_BYTES

_JITTER_SDS = 2.0


class SentEcho(NamedTuple):
    """An echo as the gateway's clock saw it.

    Attributes:
        earliest, latest: seconds since the gateway began, between which it was sent.
        stalled_s: seconds of stalls for lost packets during the echo, by direction.
    """

    earliest: float
    latest: float
    stalled_s: Mapping[Direction, float]


def sent_echoes(samples: list[EchoSample], client: str) -> Iterator[SentEcho]:
    """Yield the echoes that were sent between each two samples.

    The gateway read its clock at some instant between the request and the reply of a sample, and
    the echo was sent at the instant of the reply.
    """
    for before, after in pairwise(samples):
        clock = before.stats["at"] - before.stats["began"]
        was, now = before.stats["devices"][client], after.stats["devices"][client]
        stalled_s: dict[Direction, float] = {
            each: now[each]["stalled_s"] - was[each]["stalled_s"] for each in DIRECTIONS
        }
        yield SentEcho(clock, clock + before.replied - before.asked, stalled_s)


@dataclass(frozen=True, slots=True)
class ImpliedRoundTrip:
    """The median round trip that a link implies for some echoes, in seconds.

    Attributes:
        asked_s: if nothing but the link delays them.
        late_s: by how much it is longer if the machine is late within the tolerance, because an
            echo that misses an opportunity of a trace waits for the next.
    """

    asked_s: float
    late_s: float


class EchoModel:
    """The round trips of echoes over a link, by its own rates."""

    def __init__(self, line: MeasuredLink) -> None:
        self._shape = line.shape
        seed = line.gateway.config.seed
        self._rates = {each: rate_of(line.shape, each, seed, line.client) for each in DIRECTIONS}

    def implied(self, echoes: list[SentEcho], tolerance_s: float) -> ImpliedRoundTrip:
        """The round trip that the link implies for echoes. There must be some."""
        hold_s = tolerance_s + _JITTER_SDS * self._shape.jitter_s
        asked = median(self._back(each, each.earliest, 0.0) - each.earliest for each in echoes)
        late = median(self._back(each, each.latest, hold_s) - each.earliest for each in echoes)
        return ImpliedRoundTrip(asked, late - asked)

    def _back(self, echo: SentEcho, at: float, hold_s: float) -> float:
        """The instant at which an echo is back if it reaches the gateway `hold_s` late each way."""
        for each in DIRECTIONS:
            left = self._rates[each].finish(at + hold_s, ECHO_BYTES)
            at = left + echo.stalled_s[each] + self._shape.delay_s(each)
        return at
