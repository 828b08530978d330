"""Rates of links, which may vary over time.

Rule 1: a rate is a function of time. Its methods get instants as arguments and change nothing that
a caller can see, so the order of calls does not matter. Instants are seconds since the gateway
began.

Rule 2: random numbers are drawn from named streams, so that a link is the same in every run with
the same seed.
"""

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from statistics import NormalDist
from typing import Protocol

from muster.common import seeds
from muster.common.lines import Limit, LineJitter, LineTrace, LinkModel
from muster.common.rates.over_time import RateOverTime
from muster.common.rates.recording import Direction
from muster.emulator.gateway.loss import PACKET_BYTES, loss_of
from muster.emulator.links.shape import Shape

_PEAK_SDS = 3.0  # the rate is above for 0.1 % of the time
_BLOCK_STEPS = 256
_BLOCKS_KEPT = 2


class Rate(Protocol):
    """The rate of a link as bytes over time."""

    @property
    def mean(self) -> float:
        """Bytes per second in the long run; infinite if there is no limit."""
        ...

    @property
    def peak(self) -> float:
        """Highest bytes per second, except for times too short to matter."""
        ...

    def finish(self, start_s: float, nbytes: float) -> float:
        """The instant at which `nbytes` that begin to leave at `start_s` have left."""
        ...

    def capacity(self, since_s: float, until_s: float) -> float:
        """Bytes that could have left between two instants."""
        ...


class Unlimited:
    """A rate without a limit."""

    mean = peak = math.inf

    def finish(self, start_s: float, nbytes: float) -> float:
        return start_s

    def capacity(self, since_s: float, until_s: float) -> float:
        return math.inf


class ConstantRate:
    """A rate that never changes.

    Args:
        mean: bytes per second.
    """

    def __init__(self, mean: float) -> None:
        self.mean = self.peak = mean

    def finish(self, start_s: float, nbytes: float) -> float:
        return start_s + nbytes / self.mean

    def capacity(self, since_s: float, until_s: float) -> float:
        return (until_s - since_s) * self.mean


class Fading:
    """A log-normal rate m·exp(σX - σ²/2) with mean m that is constant during each step.

    X is an AR(1) process, standard normal at every step, with autocorrelation exp(-t/time_s). The
    draws of each block of 256 steps come from a stream of its own. The first call for an instant
    computes X up to there once; after that, 8 bytes are kept for every 256 steps, and the last
    blocks.

    Args:
        base: m, bytes per second.
        bound: upper bound of the rate, bytes per second.
        name: name of the streams from which X is drawn.
    """

    def __init__(
        self,
        base: float,
        sigma: float,
        time_s: float,
        step_s: float,
        seed: int,
        name: tuple[str, ...],
        bound: float = math.inf,
    ) -> None:
        self.mean = _mean_below(bound, base, sigma)
        self._scale, self._bound = base * math.exp(-(sigma**2) / 2), bound
        self.peak = min(bound, self._scale * math.exp(_PEAK_SDS * sigma))
        self._sigma, self._step = sigma, step_s
        self._rho = math.exp(-step_s / time_s)
        self._seed, self._name = seed, name
        self._x = [float(seeds.stream(seed, *name).standard_normal())]  # X before each block
        self._before = [0.0]  # bytes that could have left before each block
        self._blocks: dict[int, array[float]] = {}

    def finish(self, start_s: float, nbytes: float) -> float:
        step = int(start_s / self._step)
        while True:
            rate, end = self._rate(step), (step + 1) * self._step
            room = rate * (end - start_s)
            if nbytes <= room:
                return start_s + nbytes / rate
            nbytes -= max(0.0, room)
            start_s, step = max(start_s, end), step + 1

    def capacity(self, since_s: float, until_s: float) -> float:
        return self._total(until_s) - self._total(since_s)

    def _total(self, instant: float) -> float:
        step = int(instant / self._step)
        number, place = divmod(step, _BLOCK_STEPS)
        block = self._block(number)
        whole = self._before[number] + math.fsum(block[:place]) * self._step
        return whole + block[place] * (instant - step * self._step)

    def _rate(self, step: int) -> float:
        number, place = divmod(step, _BLOCK_STEPS)
        return self._block(number)[place]

    def _block(self, number: int) -> "array[float]":
        block = self._blocks.get(number)
        if block is None:
            for each in range(len(self._before) - 1, number):
                self._block_made(each)
            block = self._block_made(number)
        return block

    def _block_made(self, number: int) -> "array[float]":
        """Draw block `number`. All blocks before it must have been drawn once."""
        rho, spread = self._rho, math.sqrt(1 - self._rho**2)
        drawn = seeds.stream(self._seed, *self._name, number).standard_normal(_BLOCK_STEPS)
        walk = list(
            accumulate(drawn.tolist(), lambda x, e: rho * x + spread * e, initial=self._x[number])
        )
        scale, sigma, bound = self._scale, self._sigma, self._bound
        block = array("d", [min(bound, scale * math.exp(sigma * x)) for x in walk[:-1]])
        if number == len(self._before) - 1:
            self._x.append(walk[-1])
            self._before.append(self._before[-1] + math.fsum(block) * self._step)
        while len(self._blocks) >= _BLOCKS_KEPT:
            self._blocks.pop(next(iter(self._blocks)))
        self._blocks[number] = block
        return block


class TraceRate:
    """The rate of a recorded link.

    Args:
        trace: shared by all devices that replay it.
        start_s: where in the trace the device begins, seconds.
        factor: what its rates are multiplied by.
    """

    def __init__(self, trace: RateOverTime, start_s: float = 0.0, factor: float = 1.0) -> None:
        self._trace, self._start_s = trace, start_s
        self._bits = 8 / factor  # of the trace, for each byte that passes
        self.mean, self.peak = trace.mean_bps / self._bits, trace.peak_bps / self._bits

    def finish(self, start_s: float, nbytes: float) -> float:
        if nbytes <= 0:
            return start_s
        end_s = self._trace.finish(start_s + self._start_s, self._bits * nbytes) - self._start_s
        return max(start_s, end_s)

    def capacity(self, since_s: float, until_s: float) -> float:
        total, start_s = self._trace.total, self._start_s
        return (total(until_s + start_s) - total(since_s + start_s)) / self._bits


class Capped:
    """A rate capped by a constant rate: the slower of both, for pieces of bytes that leave faster
    than the rate changes.

    Args:
        bound: the constant rate, bytes per second.
    """

    def __init__(self, rate: Rate, bound: float) -> None:
        self._rate, self._bound = rate, ConstantRate(bound)
        self.mean, self.peak = min(rate.mean, bound), min(rate.peak, bound)

    def finish(self, start_s: float, nbytes: float) -> float:
        return max(self._rate.finish(start_s, nbytes), self._bound.finish(start_s, nbytes))

    def capacity(self, since_s: float, until_s: float) -> float:
        return min(self._rate.capacity(since_s, until_s), self._bound.capacity(since_s, until_s))


class InterruptedRate:
    """A rate with gaps in which nothing passes, as in handovers of a phone from cell to cell.

    Gaps have the same length. The times between them are exponential, and drawn from a stream of
    their own, so that both directions of a device have the same gaps.

    Args:
        time_s: mean time from the end of a gap to the next one.
        gap_s: length of a gap.
        name: name of the stream.
    """

    def __init__(
        self, rate: Rate, time_s: float, gap_s: float, seed: int, name: tuple[str, ...]
    ) -> None:
        self._rate, self._time_s, self.gap_s = rate, time_s, gap_s
        self._draws = seeds.stream(seed, *name)
        self._begins, self._ends = array("d"), array("d")
        self._before = array("d")  # bytes that could have left before each gap
        self.mean, self.peak = rate.mean * time_s / (time_s + gap_s), rate.peak

    def finish(self, start_s: float, nbytes: float) -> float:
        number = self._next_gap(start_s)
        start_s = self._after(start_s, number)
        while True:
            number = self._next_gap(start_s)
            begins_s = self._begins[number]
            end_s = self._rate.finish(start_s, nbytes)
            if end_s <= begins_s:
                return end_s
            nbytes = max(0.0, nbytes - self._rate.capacity(start_s, begins_s))
            start_s = self._ends[number]

    def capacity(self, since_s: float, until_s: float) -> float:
        if math.isinf(self._rate.mean):
            return math.inf
        return self._total(until_s) - self._total(since_s)

    def gaps(self, since_s: float, until_s: float) -> Iterator[tuple[float, float]]:
        """Yield the gaps that begin and end between two instants."""
        number = self._next_gap(since_s)
        while self._ends[number] <= until_s:
            if self._begins[number] >= since_s:
                yield self._begins[number], self._ends[number]
            number = self._next_gap(self._ends[number])

    def _total(self, instant: float) -> float:
        number = self._next_gap(instant)
        while len(self._before) <= number:
            last = len(self._before)
            before = self._before[-1] if last else 0.0
            opened_s = self._ends[last - 1] if last else 0.0
            self._before.append(before + self._rate.capacity(opened_s, self._begins[last]))
        opened_s = self._ends[number - 1] if number else 0.0
        until_s = max(opened_s, min(instant, self._begins[number]))
        return self._before[number] - self._rate.capacity(until_s, self._begins[number])

    def _after(self, instant: float, number: int) -> float:
        """The first instant that is in no gap, if this gap is the next that ends."""
        return instant if instant < self._begins[number] else self._ends[number]

    def _next_gap(self, instant: float) -> int:
        """The number of the first gap that ends after an instant."""
        while not self._ends or self._ends[-1] <= instant:
            end_s = self._ends[-1] if self._ends else 0.0
            for time_s in self._draws.exponential(self._time_s, _BLOCK_STEPS).tolist():
                self._begins.append(end_s + time_s)
                end_s += time_s + self.gap_s
                self._ends.append(end_s)
        return bisect_right(self._ends, instant)


def rate_of(
    shape: Shape, direction: Direction, seed: int, client: str, bounded: bool = True
) -> Rate:
    """The rate of a device's own link, without the stalls of loss.

    Args:
        bounded: whether it is the rate of one connection, which loss bounds.

    Raises:
        ValueError: the trace cannot be read.
    """
    rate = _without_gaps(shape, direction, seed, client, _bound(shape, direction, bounded))
    if shape.handover_time_s is None or not shape.handover_gap_s:
        return rate
    gaps = shape.handover_time_s, shape.handover_gap_s
    return InterruptedRate(rate, *gaps, seed, ("handover", client))


def _without_gaps(shape: Shape, direction: Direction, seed: int, client: str, bound: float) -> Rate:
    """The rate of a link that is nowhere above a bound, in bytes per second."""
    trace, bps = shape.trace(direction), shape.bps(direction)
    rate: Rate
    if trace is not None:
        rate = TraceRate(trace, shape.trace_start_s, _factor(shape, direction))
    elif bps is None:
        return Unlimited() if math.isinf(bound) else ConstantRate(bound)
    elif not shape.fading:
        return ConstantRate(min(bound, bps / 8))
    else:
        name = ("fading", client, direction)
        times = shape.fading_time_s, shape.fading_step_s
        return Fading(bps / 8, shape.fading, *times, seed, name, bound)
    return rate if math.isinf(bound) else Capped(rate, bound)


def rate_of_limit(limit: Limit, factor: float = 1.0, most_bps: float | None = None) -> Rate:
    """The rate of a link that devices share.

    Args:
        factor: what it is multiplied by.
        most_bps: it is never faster; None: no further limit.

    Raises:
        ValueError: the recording cannot be read.
    """
    rate: Rate
    if limit.traces:
        [trace] = limit.traces
        rate = TraceRate(trace.whole(), trace.start_s, factor)
    elif limit.bounded:
        rate = ConstantRate(factor * limit.bps / 8)
    else:
        return Unlimited() if most_bps is None else ConstantRate(most_bps / 8)
    return rate if most_bps is None else Capped(rate, most_bps / 8)


def _bound(shape: Shape, direction: Direction, of_connection: bool = True) -> float:
    """The bytes per second that a rate cannot exceed."""
    loss = loss_of(shape, direction) if of_connection else None
    most = shape.most_down_bps if direction == "down" else shape.most_up_bps
    return min(loss.bound if loss else math.inf, math.inf if most is None else most / 8)


def _factor(shape: Shape, direction: Direction) -> float:
    return shape.trace_down_factor if direction == "down" else shape.trace_up_factor


def mean_bps(shape: Shape, direction: Direction) -> float | None:
    """Mean rate of one connection in the long run, bits per second, reduced by loss and handovers;
    None: no limit."""
    loss = loss_of(shape, direction)
    bound = _bound(shape, direction)
    trace, bps = shape.trace(direction), shape.bps(direction)
    if trace is not None:
        mean = min(bound, _factor(shape, direction) * trace.mean_bps / 8)
    else:
        mean = bound if bps is None else _mean_below(bound, bps / 8, shape.fading)
    mean *= 1 - shape.handover_share
    if loss:
        mean = loss.left_of(mean)
    return None if math.isinf(mean) else 8 * mean


def _mean_below(bound: float, mean: float, sigma: float) -> float:
    """The mean of min(bound, L), where L is log-normal with `mean`."""
    if not sigma or math.isinf(bound):
        return min(bound, mean)
    away = math.log(bound / mean) / sigma
    below, above = NormalDist().cdf(away - sigma / 2), NormalDist().cdf(-away - sigma / 2)
    return mean * below + bound * above


def model_of_device(shape: Shape, seed: int, client: str) -> LinkModel:
    """The model of a device's link with its jitter, which is drawn from the seed."""
    line = model_of(shape)
    if not shape.jitter_s:
        return line
    jitter = LineJitter(
        deviation_s=shape.jitter_s,
        distribution=shape.jitter_distribution,
        down_s=shape.delay_s("down"),
        up_s=shape.delay_s("up"),
        seed=seed,
        client=client,
    )
    return line.model_copy(update={"jitter": jitter})


def model_of(shape: Shape) -> LinkModel:
    """The model of a device's link without jitter: mean or recorded rates, reduced by loss and
    handovers."""
    down_bps, up_bps = (mean_bps(shape, direction) for direction in ("down", "up"))
    return LinkModel(
        down_bps=down_bps,
        up_bps=up_bps,
        down_traces=_line_traces(shape, shape.trace_down, "down"),
        up_traces=_line_traces(shape, shape.trace_up, "up"),
        rtt_s=shape.rtt_s,
        window_bytes=shape.initial_window and PACKET_BYTES * shape.initial_window,
        queue_down_bytes=shape.queue_down_bytes,
        queue_up_bytes=shape.queue_up_bytes,
        gap_s=0.0 if shape.handover_time_s is None else shape.handover_gap_s,
        cell=shape.cell,
    )


def _line_traces(shape: Shape, file: str | None, direction: Direction) -> tuple[LineTrace, ...]:
    if file is None:
        return ()
    loss, open_share = loss_of(shape, direction), 1 - shape.handover_share
    trace = LineTrace(
        file=file,
        format=shape.trace_format,
        direction=direction,
        start_s=shape.trace_start_s,
        share=open_share,
        most_bps=8 * open_share * loss.bound if loss else None,
        stalled_s_a_bit=loss.stalled_s_a_byte / 8 if loss else 0.0,
    )
    return (trace,)
