"""Measures the links of running gateways, and restores the gateways' settings afterwards.

shared limits lifted     round trips of small messages on idle links
                         rates up, rates down, in batches that the machine can carry
                         what gRPC achieves on one link of each group, for information
shared limits in force   all devices of a group at once: sum and fairness
"""

import asyncio
import math
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

from muster.common import seeds
from muster.common.clock import Clock
from muster.common.credentials import Credentials
from muster.common.errors import TransportError
from muster.common.rates.recording import Direction
from muster.emulator.credentials.issuing import Certifier
from muster.emulator.link_control.running_gateway import RunningGateway
from muster.emulator.links.shape import SharedState
from muster.emulator.verification.echo_model import sent_echoes
from muster.emulator.verification.echoes import echo_delays
from muster.emulator.verification.expectations import batches
from muster.emulator.verification.fidelity import (
    judge_echoes,
    judge_queue,
    judge_shared_queue,
    judge_transfer,
    needs_echoes,
    queue_s,
)
from muster.emulator.verification.grpc_probe import GrpcBulk, GrpcEcho, ProbeIdentities, ProbeServer
from muster.emulator.verification.judging import (
    RoundTrips,
    expected_rtt_s,
    grpc_rate_row,
    grpc_rtt_row,
    judge_rate,
    judge_rtt,
    judge_shared,
)
from muster.emulator.verification.load import Lateness, gateway_lateness_s, unjudged
from muster.emulator.verification.measuring import (
    Echo,
    LinkMeasurement,
    MeasuredLink,
    MeasuredTransfer,
    emptied,
    lines_of,
    measure,
    round_trips,
    sample,
)
from muster.emulator.verification.reflector import Bulk, RawEcho, Reflector
from muster.emulator.verification.result import SHARED, Row, Tolerances, Verification

Show = Callable[[str], None]

SECONDS = 5.0
DEVICES = 8

_LOOPBACK = "127.0.0.1"

_TOGETHER_BPS = 400e6
"""Sum of rates that are measured at once. Two cores can easily carry it, with Python at both
ends."""

_AT_ONCE = 32
_OPEN_S = 1.0
"""Seconds to measure a link without a limit, for which there is nothing to compare."""

_FILLING_S, _FIRST_ROUNDS = 0.5, 12
"""A queue is full after the first number of seconds and twice the time in which it passes; with
slow start, after so many round trips more."""

_STEP_S = 0.5
_SHARED_STEP_S = 0.2
"""Seconds between two requests for the gateways' statistics; the second is for links that share a
rate, where several rates matter."""

_DIRECTIONS: tuple[Direction, Direction] = ("up", "down")


async def verify_gateways(
    gateways: Sequence[RunningGateway],
    clock: Clock,
    *,
    scenario: str = "",
    seconds: float = SECONDS,
    tolerances: Tolerances | None = None,
    devices: int = DEVICES,
    grpc: bool = True,
    here: str = _LOOPBACK,
    certifier: Certifier | None = None,
    show: Show = lambda step: None,
) -> Verification:
    """Measure the links of running gateways that carry no other traffic.

    This changes the shared limits and the server's address of the gateways. Afterwards, even after
    a failure, they are restored to those in each gateway's `config`.

    Args:
        scenario: name of the scenario, for the result.
        seconds: how long each rate is measured.
        devices: number of devices of each gateway that are measured one by one, chosen by the seed;
            0: all.
        here: this machine's address as gateways reach it, because the other end of the links is
            here.
        certifier: certifies both ends of gRPC; None: they use no TLS.
        grpc: whether to also measure what gRPC achieves on one link of each gateway.
        show: called with a description of each step, for people.

    Raises:
        TransportError: a gateway does not accept connections.
    """
    tolerances = tolerances or Tolerances()
    work = _Verifier(gateways, clock, seconds, tolerances, devices, here, certifier, show)
    rows = await work.all(grpc)
    order = {gateway.group: place for place, gateway in enumerate(gateways)}

    def place(row: Row) -> tuple[int, bool, bool, str]:
        return order[row.group], row.quantity.startswith("grpc"), row.link == SHARED, row.link

    return Verification(scenario, seconds, tolerances, sorted(rows, key=place))


class _Verifier:
    def __init__(
        self,
        gateways: Sequence[RunningGateway],
        clock: Clock,
        seconds: float,
        tolerances: Tolerances,
        devices: int,
        here: str,
        certifier: Certifier | None,
        show: Show,
    ) -> None:
        self._gateways, self._clock, self._seconds = gateways, clock, seconds
        self._tolerances, self._show = tolerances, show
        self._here, self._identities = here, ProbeIdentities.drawn(certifier)
        self._reflector = Reflector(clock, here)
        self._lines = [_chosen(gateway, devices) for gateway in gateways]
        self._lateness = Lateness(clock)

    async def all(self, grpc: bool) -> list[Row]:
        """Measure everything, restore the gateways' settings, and return all rows."""
        try:
            rows = await self._measured(grpc)
        except BaseException:
            with suppress(TransportError):  # an unfinished request may have ended the connection
                await self._restore()
            raise
        else:
            await self._restore()
        finally:
            await self._reflector.close()
        return rows

    async def _measured(self, grpc: bool) -> list[Row]:
        lines = [line for of_gateway in self._lines for line in of_gateway]
        await self._set_upstream(await self._reflector.start())
        await self._share(lift=True)
        rows = await self._judged(partial(self._round_trips, lines))
        rows += await self._judged(partial(self._echoes, lines))
        for direction in _DIRECTIONS:
            rows += await self._judged(partial(self._rates, lines, direction))
            rows += await self._judged(partial(self._queues, lines, direction))
        if grpc:
            rows += await self._grpc()
            await self._set_upstream(self._reflector.address)
        await self._share(lift=False)
        for direction in _DIRECTIONS:
            rows += await self._judged(partial(self._shared, direction))
        return rows

    async def _judged(self, measure_rows: Callable[[], Awaitable[list[Row]]]) -> list[Row]:
        """Measure rows, which say if the machine was too loaded to judge them."""
        before = [await gateway.controller.stats([]) for gateway in self._gateways]
        async with self._lateness.watched():
            rows = await measure_rows()
        after = [await gateway.controller.stats([]) for gateway in self._gateways]
        late_s = max(map(gateway_lateness_s, before, after), default=0.0)
        return unjudged(rows, max(late_s, self._lateness.seconds), self._tolerances)

    # --- the gateways' settings ------------------------------------------------------------------

    async def _set_upstream(self, address: str) -> None:
        for gateway in self._gateways:
            await gateway.controller.upstream(address)

    async def _share(self, lift: bool) -> None:
        for gateway in self._gateways:
            if gateway.config.shared.delays:
                await gateway.controller.set_shared(SharedState(limited=not lift))

    async def _restore(self) -> None:
        await self._share(lift=False)
        for gateway in self._gateways:
            await gateway.controller.upstream(gateway.config.upstream)

    # --- one by one ------------------------------------------------------------------------------

    async def _round_trips(self, lines: Sequence[MeasuredLink]) -> list[Row]:
        rows: list[Row] = []
        for batch in batches(lines, [0.0] * len(lines), 1.0, _AT_ONCE):
            self._show(f"round trips of {_named(batch)}")
            found = await asyncio.gather(*map(self._raw_round_trip, batch))
            rows += [
                judge_rtt(line, each, self._tolerances)
                for line, each in zip(batch, found, strict=True)
            ]
        return rows

    async def _raw_round_trip(self, line: MeasuredLink) -> RoundTrips:
        return await self._round_trip(line, RawEcho(line.host, line.port, self._clock))

    async def _round_trip(self, line: MeasuredLink, echo: Echo) -> RoundTrips:
        try:
            await echo.start()
            trips, samples = await round_trips(
                line, echo, expected_rtt_s(line), self._seconds, self._clock
            )
        except TransportError as error:
            return RoundTrips(None, 0, str(error))
        finally:
            await echo.close()
        sent = list(sent_echoes(samples, line.client))
        return RoundTrips(statistics.median(trips), len(trips), sent=sent)

    async def _rates(self, lines: Sequence[MeasuredLink], direction: Direction) -> list[Row]:
        limited = [line for line in lines if line.mean_bps(direction) is not None]
        rows: list[Row] = []
        for batch in _batches(limited, direction):
            self._show(f"rates {direction} of {_named(batch)}, {self._seconds:g} s")
            found = await self._bulk(batch, direction, self._seconds, _STEP_S)
            for line, each in zip(batch, found, strict=True):
                rows.append(judge_rate(line, direction, each, self._tolerances))
                rows += judge_transfer(line, direction, each, self._tolerances)
        # One link without a limit per group is enough to see what the machine can do.
        for line in [line for line in _firsts(lines) if line.mean_bps(direction) is None]:
            self._show(f"rate {direction} of {line.client}, which has no limit")
            open_s = min(self._seconds, _OPEN_S)
            (found_one,) = await self._bulk([line], direction, open_s, open_s)
            rows.append(judge_rate(line, direction, found_one, self._tolerances))
            rows += judge_transfer(line, direction, found_one, self._tolerances)
        return rows

    async def _echoes(self, lines: Sequence[MeasuredLink]) -> list[Row]:
        """Delays one way, jitter and lost packets of links that have them."""
        rows: list[Row] = []
        lines = [line for line in lines if needs_echoes(line)]
        for batch in batches(lines, [0.0] * len(lines), 1.0, _AT_ONCE):
            self._show(f"delays and losses of {_named(batch)}, {self._seconds:g} s")
            found = await asyncio.gather(
                *(echo_delays(line, self._reflector, self._clock, self._seconds) for line in batch)
            )
            for line, echoes in zip(batch, found, strict=True):
                rows += judge_echoes(line, echoes, self._tolerances)
        return rows

    async def _queues(self, lines: Sequence[MeasuredLink], direction: Direction) -> list[Row]:
        """How long messages wait in the queues of links that have one of their own length."""
        return [
            await self._queue(line, direction)
            for line in lines
            if line.shape.queue_bytes(direction) and line.mean_bps(direction)
        ]

    async def _queue(self, line: MeasuredLink, direction: Direction) -> Row:
        self._show(f"queue {direction} of {line.client}")
        clock, flow = self._clock, Bulk(self._reflector, line.host, line.port, direction)
        second_0 = (await sample(line.gateway, clock)).second_0
        try:
            await flow.start()
            fills_s = 2 * queue_s(line, direction, clock.monotonic() + second_0)
            slow_s = _FIRST_ROUNDS * line.shape.rtt_s if line.shape.initial_window else 0.0
            await clock.sleep_until(clock.monotonic() + _FILLING_S + fills_s + slow_s)
            # One connection: the echoes of several would wait for each other in the queue.
            echoes = await echo_delays(line, self._reflector, clock, self._seconds, connections=1)
        finally:
            await flow.close()
        await emptied([line], clock)
        return judge_queue(line, direction, echoes, second_0, self._tolerances)

    async def _bulk(
        self,
        lines: Sequence[MeasuredLink],
        direction: Direction,
        seconds: float,
        step_s: float,
        cap_bps: float = math.inf,
    ) -> list[LinkMeasurement]:
        """Use several links at once and measure their rates. If they share a link, its limit is
        `cap_bps`."""
        paces = [_finite(min(_bps(line, direction), cap_bps / len(lines))) for line in lines]
        transfers = [
            MeasuredTransfer(
                line, direction, Bulk(self._reflector, line.host, line.port, direction), pace
            )
            for line, pace in zip(lines, paces, strict=True)
        ]
        found = await measure(transfers, seconds, step_s, self._clock)
        await emptied(lines, self._clock)
        return found

    # --- together --------------------------------------------------------------------------------

    async def _shared(self, direction: Direction) -> list[Row]:
        rows: list[Row] = []
        for gateway in self._gateways:
            cap_bps = gateway.shared_bps(direction) or math.inf
            lines = _chosen(gateway, _AT_ONCE)
            if math.isinf(cap_bps):
                lines = [line for line in lines if _shares_cell(line, direction)]
            if not lines:
                continue
            self._show(f"{len(lines)} devices of {gateway.group} {direction} at once")
            found = await self._bulk(lines, direction, self._seconds, _SHARED_STEP_S, cap_bps)
            of = len(gateway.config.devices)
            rows += judge_shared(lines, of, direction, found, self._tolerances)
            if gateway.config.shared.queue_bytes(direction) and len(lines) > 1:
                rows.append(await self._shared_queue(lines, direction))
        return rows

    async def _shared_queue(self, lines: Sequence[MeasuredLink], direction: Direction) -> Row:
        """How long a message of one device waits behind the transfers of the others."""
        *others, last = lines
        self._show(f"the queue {direction} that devices of {last.gateway.group} share")
        clock = self._clock
        flows = [Bulk(self._reflector, each.host, each.port, direction) for each in others]
        second_0 = (await sample(last.gateway, clock)).second_0
        try:
            await asyncio.gather(*(flow.start() for flow in flows))
            fills_s = 2 * last.gateway.config.shared.queue_s
            slowest_s = max(each.shape.rtt_s for each in others)
            wait_s = _FILLING_S + fills_s + _FIRST_ROUNDS * slowest_s
            await clock.sleep_until(clock.monotonic() + wait_s)
            echoes = await echo_delays(last, self._reflector, clock, self._seconds, connections=1)
        finally:
            await asyncio.gather(*(flow.close() for flow in flows))
        await emptied(lines, clock)
        return judge_shared_queue(last, others, direction, echoes, second_0, self._tolerances)

    # --- gRPC ------------------------------------------------------------------------------------

    async def _grpc(self) -> list[Row]:
        lines = _firsts([line for of_gateway in self._lines for line in of_gateway])
        self._show("what gRPC achieves on links")
        async with self._probe_server(lines) as device:
            trips = await asyncio.gather(*(self._grpc_round_trip(each, device) for each in lines))
        rows = [grpc_rtt_row(line, each) for line, each in zip(lines, trips, strict=True)]
        for direction in _DIRECTIONS:
            for batch in _batches(lines, direction):
                found = await self._grpc_bulk(batch, direction)
                rows += [
                    grpc_rate_row(line, direction, each)
                    for line, each in zip(batch, found, strict=True)
                ]
        return rows

    @asynccontextmanager
    async def _probe_server(self, lines: Sequence[MeasuredLink]) -> AsyncIterator[Credentials]:
        """Run a server to which the gateways connect, and yield the credentials of a device.
        Closing it also ends the connections that gateways still hold, so nothing is left of its
        calls."""
        server = ProbeServer(self._identities, self._clock, lines, self._here)
        try:
            await self._set_upstream(await server.start())
            yield self._identities.device
        finally:
            await server.close()
        await emptied(lines, self._clock)

    async def _grpc_round_trip(self, line: MeasuredLink, device: Credentials) -> RoundTrips:
        return await self._round_trip(line, GrpcEcho(line, device, self._clock))

    async def _grpc_bulk(
        self, lines: Sequence[MeasuredLink], direction: Direction
    ) -> list[LinkMeasurement]:
        limited = all(line.mean_bps(direction) is not None for line in lines)
        seconds = self._seconds if limited else min(self._seconds, _OPEN_S)
        async with self._probe_server(lines) as device:
            transfers = [
                MeasuredTransfer(
                    line,
                    direction,
                    GrpcBulk(line, device, direction, self._clock),
                    line.mean_bps(direction),
                )
                for line in lines
            ]
            return await measure(transfers, seconds, min(_STEP_S, seconds), self._clock)


def _chosen(gateway: RunningGateway, most: int) -> list[MeasuredLink]:
    """At most `most` links of a gateway, chosen by its seed, in order; 0: all."""
    lines = lines_of(gateway)
    if not most or len(lines) <= most:
        return lines
    stream = seeds.stream(gateway.config.seed, "verify", gateway.group)
    return [lines[place] for place in sorted(stream.permutation(len(lines))[:most].tolist())]


def _shares_cell(line: MeasuredLink, direction: Direction) -> bool:
    """Whether a device is in a cell with a limit."""
    shared = line.gateway.config.shared
    limits = shared.cell_limits(direction)
    return any(limits[cell].bounded for cell in shared.path(line.shape.cell))


def _firsts(lines: Sequence[MeasuredLink]) -> list[MeasuredLink]:
    """The first link of each group."""
    return list({line.gateway.group: line for line in reversed(lines)}.values())[::-1]


def _bps(line: MeasuredLink, direction: Direction) -> float:
    mean = line.mean_bps(direction)
    return math.inf if mean is None else mean


def _finite(bps: float) -> float | None:
    return None if math.isinf(bps) else bps


def _batches(lines: Sequence[MeasuredLink], direction: Direction) -> list[list[MeasuredLink]]:
    weights = [line.mean_bps(direction) or _TOGETHER_BPS for line in lines]
    return batches(lines, weights, _TOGETHER_BPS, _AT_ONCE)


def _named(lines: Sequence[MeasuredLink]) -> str:
    return lines[0].client if len(lines) == 1 else f"{len(lines)} devices"
