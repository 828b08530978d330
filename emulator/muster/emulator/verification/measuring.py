"""Measures transfers and echoes over the links of running gateways.

Rule 1: a rate is measured by the bytes that arrive at the receiver, after the link has settled.

Rule 2: the gateway reports how many bytes a varying rate allowed. The receiver's interval is the
same but later by the link's delay, because bytes arrive that much later than they leave the link.
"""

import asyncio
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from muster.common.clock import Clock
from muster.common.rates.recording import DIRECTIONS, Direction
from muster.emulator.gateway.loss import loss_of
from muster.emulator.gateway.rates import mean_bps
from muster.emulator.link_control.running_gateway import RunningGateway
from muster.emulator.links.shape import Shape
from muster.emulator.verification.expectations import settling_bytes
from muster.emulator.verification.meter import RateMeter
from muster.emulator.verification.reflector import ECHO_BYTES

_LOOK_S = 0.02
PATIENCE_S = 5.0
_PATIENCE_RTTS = 4

_LOW_SDS = 3.0
"""A rate fades lower than by so many standard deviations for 0.1 % of the time."""

_ECHOES = 5, 20


@dataclass(frozen=True)
class MeasuredLink:
    """One device's link, with the shape that it should have."""

    gateway: RunningGateway
    client: str
    shape: Shape

    @property
    def port(self) -> int:
        return self.gateway.ports.devices[self.client]

    @property
    def host(self) -> str:
        return self.gateway.ports.host

    @property
    def shaped(self) -> bool:
        """Whether the link should delay or limit anything."""
        return bool(self.shape.rtt_s or self.mean_bps("up") or self.mean_bps("down"))

    def mean_bps(self, direction: Direction) -> float | None:
        """The rate that the link should have in the long run; None: no limit."""
        return mean_bps(self.shape, direction)

    @property
    def longest_wait_s(self) -> float:
        """About the longest time that an echo waits for opportunities of traces, on faded rates, in
        handovers, and for lost packets, in both directions together."""
        shape, losses = self.shape, [loss_of(self.shape, each) for each in DIRECTIONS]
        gaps_s = math.fsum(trace.gap_s for each in DIRECTIONS if (trace := shape.trace(each)))
        slower = math.exp(_LOW_SDS * shape.fading + shape.fading**2 / 2) if shape.fading else 0.0
        means = [mean for mean in (self.mean_bps("up"), self.mean_bps("down")) if mean]
        faded_s = slower * math.fsum(8 * ECHO_BYTES / mean for mean in means)
        if shape.handover_time_s is not None:
            gaps_s += 2 * shape.handover_gap_s
        return gaps_s + faded_s + math.fsum(loss.long_stall_s for loss in losses if loss)

    def varies(self, direction: Direction) -> bool:
        """Whether the link's rate varies over time."""
        shape = self.shape
        fades = bool(shape.fading and self.mean_bps(direction))
        changes = shape.trace(direction) is not None or shape.handover_time_s is not None
        return changes or bool(shape.loss_of(direction)) or fades


def lines_of(gateway: RunningGateway) -> list[MeasuredLink]:
    """The links behind a gateway."""
    return [MeasuredLink(gateway, device.client, device.shape) for device in gateway.config.devices]


class TestFlow(Protocol):
    """A transfer that sends as much as a link takes."""

    @property
    def meter(self) -> RateMeter: ...
    async def start(self) -> None: ...
    async def close(self) -> None: ...


class Echo(Protocol):
    """A connection whose small messages are sent back."""

    async def start(self) -> None: ...
    async def round_trip_s(self, patience_s: float) -> float: ...
    async def close(self) -> None: ...


@dataclass(frozen=True)
class MeasuredTransfer:
    """One direction of one link with a transfer.

    Attributes:
        pace_bps: about the rate that it will have; None: no limit.
    """

    line: MeasuredLink
    direction: Direction
    flow: TestFlow
    pace_bps: float | None


@dataclass(frozen=True)
class Step:
    """A piece of the measured interval.

    Attributes:
        received_bps: rate at which bytes arrived.
        allowed_bps: rate that the link's own rate allowed, without the stalls of loss; None: no
            limit.
    """

    seconds: float
    received_bps: float
    allowed_bps: float | None


@dataclass(frozen=True)
class LinkMeasurement:
    """The result of a transfer.

    Attributes:
        broken: whether its connection ended too early.
        arrivals: the bytes at its receiver; None: nobody kept them.
        interval: the instants between which it was measured, and what is added to an instant to get
            seconds since the gateway began.
    """

    steps: Sequence[Step]
    broken: bool
    arrivals: RateMeter | None = None
    interval: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @property
    def seconds(self) -> float:
        return math.fsum(step.seconds for step in self.steps)

    @property
    def received_bps(self) -> float:
        return math.fsum(step.seconds * step.received_bps for step in self.steps) / self.seconds

    @property
    def allowed_bps(self) -> float | None:
        """Rate that the link's own rate allowed in the measured interval; None: no limit."""
        total = 0.0
        for step in self.steps:
            if step.allowed_bps is None:
                return None
            total += step.seconds * step.allowed_bps
        return total / self.seconds


@dataclass(frozen=True)
class Sample:
    """Statistics of a gateway at an instant of this machine's clock."""

    at: float
    stats: Mapping[str, Any]

    @property
    def second_0(self) -> float:
        """What is added to an instant to get seconds since the gateway began."""
        return float(self.stats.get("at", 0.0)) - float(self.stats.get("began", 0.0)) - self.at


async def measure(
    transfers: Sequence[MeasuredTransfer], seconds: float, step_s: float, clock: Clock
) -> list[LinkMeasurement]:
    """Run transfers at once; return the measurement of each.

    Args:
        step_s: seconds between two requests for the gateways' statistics.

    Raises:
        Unreachable: a gateway does not accept connections.
    """
    gateways = _gateways_of([transfer.line for transfer in transfers])
    try:
        await asyncio.gather(*(transfer.flow.start() for transfer in transfers))
        await _settled(transfers, clock)
        samples = await _samples(gateways, seconds, step_s, clock)
        ends = {group: of_group[-1].at for group, of_group in samples.items()}
        await _followed(transfers, ends, clock)
        return [_measured(transfer, samples[transfer.line.gateway.group]) for transfer in transfers]
    finally:
        await asyncio.gather(*(transfer.flow.close() for transfer in transfers))


def _measured(transfer: MeasuredTransfer, samples: Sequence[Sample]) -> LinkMeasurement:
    meter, first, last = transfer.flow.meter, samples[0], samples[-1]
    interval = first.at, last.at, first.second_0
    return LinkMeasurement(list(_steps(transfer, samples)), meter.broken, meter, interval)


async def emptied(lines: Sequence[MeasuredLink], clock: Clock) -> None:
    """Wait until no connection is left of earlier transfers over links, because it would use a part
    of the links. Give up if this takes far too long, for example if a fault holds connections."""
    limit = clock.monotonic() + PATIENCE_S
    for gateway in _gateways_of(lines):
        clients = [line.client for line in lines if line.gateway is gateway]
        while clock.monotonic() < limit:
            devices = (await gateway.controller.stats())["devices"]
            if not any(devices[client]["connections"] for client in clients):
                break
            await clock.sleep_until(clock.monotonic() + _LOOK_S)


def _gateways_of(lines: Sequence[MeasuredLink]) -> list[RunningGateway]:
    return list({id(line.gateway): line.gateway for line in lines}.values())


async def _settled(transfers: Sequence[MeasuredTransfer], clock: Clock) -> None:
    """Wait until all transfers have settled. Give up if this takes far too long."""
    longest = max(transfer.line.shape.rtt_s for transfer in transfers)
    limit = clock.monotonic() + PATIENCE_S + _PATIENCE_RTTS * longest
    waiting = list(transfers)
    while waiting and clock.monotonic() < limit:
        await clock.sleep_until(clock.monotonic() + _LOOK_S)
        waiting = [t for t in waiting if not _has_settled(t)]


def _has_settled(transfer: MeasuredTransfer) -> bool:
    meter, nbytes = transfer.flow.meter, settling_bytes(transfer.pace_bps)
    if transfer.line.shape.initial_window is not None and transfer.pace_bps is not None:
        nbytes += 2 * transfer.pace_bps * transfer.line.shape.rtt_s / 8  # of slow start
    return meter.broken or meter.received >= nbytes


async def _followed(
    transfers: Sequence[MeasuredTransfer], ends: Mapping[str, float], clock: Clock
) -> None:
    """Wait until every receiver has got bytes after its interval, because only the next slice shows
    how much of it belongs to the interval. Give up if this takes far too long.

    Args:
        ends: when the intervals ended, by group of the gateways.
    """
    longest = max(t.line.shape.rtt_s + 3 * t.line.shape.jitter_s for t in transfers)
    limit = clock.monotonic() + longest + PATIENCE_S
    waiting = list(transfers)
    while waiting and clock.monotonic() < limit:
        await clock.sleep_until(clock.monotonic() + _LOOK_S)
        waiting = [
            t
            for t in waiting
            if not t.flow.meter.broken
            and t.flow.meter.last <= ends[t.line.gateway.group] + t.line.shape.delay_s(t.direction)
        ]


async def _samples(
    gateways: Sequence[RunningGateway], seconds: float, step_s: float, clock: Clock
) -> dict[str, list[Sample]]:
    samples: dict[str, list[Sample]] = {gateway.group: [] for gateway in gateways}
    began = clock.monotonic()
    steps = max(1, round(seconds / step_s))
    for number in range(steps + 1):
        await clock.sleep_until(began + number * seconds / steps)
        for gateway, found in zip(
            gateways, await asyncio.gather(*(sample(g, clock) for g in gateways)), strict=True
        ):
            samples[gateway.group].append(found)
    return samples


async def sample(gateway: RunningGateway, clock: Clock) -> Sample:
    """The statistics of a gateway now."""
    asked = clock.monotonic()
    stats = await gateway.controller.stats()
    return Sample((asked + clock.monotonic()) / 2, stats)


def _steps(transfer: MeasuredTransfer, samples: Sequence[Sample]) -> Iterator[Step]:
    meter, delay_s = transfer.flow.meter, transfer.line.shape.delay_s(transfer.direction)
    for before, after in pairwise(samples):
        seconds = after.at - before.at
        received = meter.received_by(after.at + delay_s) - meter.received_by(before.at + delay_s)
        could = _capacity(transfer, before), _capacity(transfer, after)
        allowed = None if could[0] is None or could[1] is None else could[1] - could[0]
        yield Step(
            seconds, 8 * received / seconds, None if allowed is None else 8 * allowed / seconds
        )


def _capacity(transfer: MeasuredTransfer, sample: Sample) -> float | None:
    found: float | None = sample.stats["devices"][transfer.line.client][transfer.direction][
        "capacity"
    ]
    return found


@dataclass(frozen=True)
class EchoSample:
    """Statistics of a gateway between two echoes, and between which instants of this machine's
    clock it took them."""

    asked: float
    replied: float
    stats: Mapping[str, Any]


async def round_trips(
    line: MeasuredLink, echo: Echo, expected_s: float, seconds: float, clock: Clock
) -> tuple[list[float], list[EchoSample]]:
    """Measure round trips of small messages, one after the other. Return them, and if the link
    varies, a sample of the gateway before each and after the last.

    As many are sent as fit into `seconds`, within the bounds _ECHOES. The first is not counted,
    because its connection may not be established yet.

    Raises:
        TransportError: a message did not come back.
    """
    least, most = _ECHOES
    count = min(most, max(least, int(seconds / max(expected_s, 1e-3))))
    patience_s = PATIENCE_S + _PATIENCE_RTTS * (expected_s + line.longest_wait_s)
    varies = line.varies("up") or line.varies("down")
    await echo.round_trip_s(patience_s)
    trips, samples = [], []
    for _ in range(count):
        if varies:
            samples.append(await _echo_sample(line, clock))
        trips.append(await echo.round_trip_s(patience_s))
    if varies:
        samples.append(await _echo_sample(line, clock))
    return trips, samples


async def _echo_sample(line: MeasuredLink, clock: Clock) -> EchoSample:
    asked = clock.monotonic()
    stats = await line.gateway.controller.stats([line.client])
    return EchoSample(asked, clock.monotonic(), stats)
