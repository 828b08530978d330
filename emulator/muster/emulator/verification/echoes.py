"""Many echoes over one link, on several connections at once, with their delays one way."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from muster.common.clock import Clock
from muster.common.errors import TransportError
from muster.emulator.verification.measuring import PATIENCE_S, MeasuredLink
from muster.emulator.verification.reflector import RawEcho, Reflector

_CONNECTIONS = 8
_MOST = 400
"""Echoes of a connection."""


class EchoDelays(NamedTuple):
    """The delays of an echo in both directions, seconds.

    Attributes:
        sent: the instant at which it was sent.
    """

    sent: float
    up_s: float
    down_s: float


async def echo_delays(
    line: MeasuredLink,
    reflector: Reflector,
    clock: Clock,
    seconds: float,
    connections: int = _CONNECTIONS,
) -> Sequence[EchoDelays]:
    """Send echoes for so many seconds, one after the other on each connection. The first of each
    connection is left out. A connection that breaks ends early."""
    until = clock.monotonic() + seconds
    patience_s = PATIENCE_S + 4 * (line.shape.rtt_s + line.longest_wait_s)

    async def one() -> list[EchoDelays]:
        echo, found = RawEcho(line.host, line.port, clock, reflector), list[EchoDelays]()
        try:
            await echo.start()
            await echo.round_trip_s(patience_s)
            while clock.monotonic() < until and len(found) < _MOST:
                sent = clock.monotonic()
                trip_s = await echo.round_trip_s(patience_s)
                up_s = echo.turned_at - sent
                found.append(EchoDelays(sent, up_s, trip_s - up_s))
        except TransportError:
            pass
        finally:
            await echo.close()
        return found

    rows = await asyncio.gather(*(one() for _ in range(connections)))
    return [each for of_connection in rows for each in of_connection]
