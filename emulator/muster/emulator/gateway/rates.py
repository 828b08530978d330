"""Rates that vary, as bytes over time.

Rule 1: a rate is a fact about time, asked by instants that are handed in; asking changes nothing,
and nothing depends on the order of questions. Instants are seconds since the gateway began.

Rule 2: what is random is drawn from streams with names, so that a link is the same in every run of
a seed.
"""

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from statistics import NormalDist
from typing import Literal, Protocol

from muster.common import seeds
from muster.emulator.links.settings import Shape

Direction = Literal["down", "up"]

PACKET_BYTES = 1460
"""Of payload, in a packet of TCP over Ethernet: the MSS in the formulas below."""

_LEAST_RTT_S = 0.001
_LEAST_RTO_S = 0.2  # Linux's; RFC 6298 would have 1 s

_OPPORTUNITY_BYTES = 1500
_PEAK_SDS = 3.0  # 0.1 % of the time it is above
_BLOCK_STEPS = 256
_BLOCKS_KEPT = 2


class Rate(Protocol):
    """Bytes over time."""

    @property
    def mean(self) -> float:
        """Bytes per second in the long run; infinite where there is no limit."""
        ...

    @property
    def peak(self) -> float:
        """Bytes per second at its best, leaving out what lasts no time worth mentioning."""
        ...

    def finish(self, start_s: float, nbytes: float) -> float:
        """The instant at which `nbytes` that begin to leave at `start_s` have left."""
        ...

    def capacity(self, since_s: float, until_s: float) -> float:
        """Bytes that could have left between two instants."""
        ...


class Unlimited:
    """No limit."""

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
    """A rate that holds for a step and wanders, log-normal with a mean: m·exp(σX - σ²/2).

    X is an AR(1) process, standard normal at every step, with autocorrelation exp(-t/time_s). The
    draws of a block of steps come from a stream of its own, so that a question about any instant
    costs what it takes to walk X there once, 8 bytes for every 256 steps, and the block itself.

    Args:
        base: m, bytes per second.
        bound: what the rate never exceeds, bytes per second.
        name: of the streams that X is drawn from.
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
        self._x = [float(seeds.stream(seed, *name).standard_normal())]  # before every block
        self._before = [0.0]  # bytes that could have left before every block
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
        """Draw block `number`; all before it have been drawn once."""
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
    """A recorded link: bytes leave only in the milliseconds that its lines name.

    A line is 1500 bytes that leave, evenly, in the millisecond that ends there; so the totals at
    whole milliseconds are Mahimahi's, and a packet's share of an opportunity is not lost.

    Args:
        lines: milliseconds, ascending, as `read_mahimahi` returns them.
    """

    def __init__(self, lines: Sequence[int]) -> None:
        # What the line 0 stands for leaves in the first millisecond: there is none before it.
        self._lines = [max(1, line) for line in lines]
        self._period = self._lines[-1]
        self._loop_bytes = _OPPORTUNITY_BYTES * len(self._lines)
        self.mean = 1000 * self._loop_bytes / self._period
        best = max(
            bisect_left(self._lines, line + 1000) - place for place, line in enumerate(self._lines)
        )
        self.peak = max(self.mean, float(_OPPORTUNITY_BYTES * best))

    def finish(self, start_s: float, nbytes: float) -> float:
        if nbytes <= 0:
            return start_s
        loops, target = divmod(self._total(start_s) + nbytes, self._loop_bytes)
        # A sum of floats may exceed a whole opportunity by a hair, and the next be far away.
        place = math.ceil(target / _OPPORTUNITY_BYTES - 1e-7) - 1
        if place < 0:
            loops, place, target = loops - 1, len(self._lines) - 1, self._loop_bytes
        line = self._lines[place]
        before, after = bisect_left(self._lines, line), bisect_right(self._lines, line)
        part = (target - _OPPORTUNITY_BYTES * before) / (_OPPORTUNITY_BYTES * (after - before))
        left = (loops * self._period + line - 1 + min(1.0, max(0.0, part))) / 1000
        return max(start_s, left)

    def capacity(self, since_s: float, until_s: float) -> float:
        return self._total(until_s) - self._total(since_s)

    def _total(self, instant: float) -> float:
        loops, within = divmod(1000 * instant, self._period)
        millisecond = int(within)
        before = bisect_right(self._lines, millisecond)
        now = bisect_right(self._lines, millisecond + 1) - before
        passed = before + now * (within - millisecond)
        return loops * self._loop_bytes + _OPPORTUNITY_BYTES * passed


class Capped:
    """The slower of a rate and a constant one, for pieces that are small beside their changes.

    Args:
        bound: bytes per second.
    """

    def __init__(self, rate: Rate, bound: float) -> None:
        self._rate, self._bound = rate, ConstantRate(bound)
        self.mean, self.peak = min(rate.mean, bound), min(rate.peak, bound)

    def finish(self, start_s: float, nbytes: float) -> float:
        return max(self._rate.finish(start_s, nbytes), self._bound.finish(start_s, nbytes))

    def capacity(self, since_s: float, until_s: float) -> float:
        return min(self._rate.capacity(since_s, until_s), self._bound.capacity(since_s, until_s))


class Loss:
    """What lost packets do to a TCP connection: a bound while it sends, and stalls.

    Padhye, Firoiu, Towsley, Kurose, Modeling TCP throughput, SIGCOMM 1998, equation 30 with b = 1
    and without the factor 1 + 32p² of repeated time-outs: a packet takes RTT·√(2p/3) in the long
    run, and RTO·min(1, 3·√(3p/8))·p for the time-outs.

    Args:
        share: p, of the packets that are lost; > 0.
    """

    def __init__(self, share: float, rtt_s: float) -> None:
        rtt_s = max(_LEAST_RTT_S, rtt_s)
        self.bound = PACKET_BYTES / (rtt_s * math.sqrt(2 * share / 3))
        """Bytes per second while nothing stalls: Mathis et al., CCR 1997."""
        self.stall_ratio = share * min(1.0, 3 * math.sqrt(3 * share / 8))
        """Probability that a packet begins a stall."""
        self.stall_s = max(_LEAST_RTO_S, 2 * rtt_s)
        """How long a stall holds its connection."""

    def left_of(self, rate: float) -> float:
        """What stalls leave of a rate in the long run, bytes per second."""
        return rate / (1 + rate * self.stall_ratio * self.stall_s / PACKET_BYTES)


class Stalls:
    """When a connection stalls, drawn from a stream of its own."""

    def __init__(self, loss: Loss, seed: int, *name: str | int) -> None:
        self._loss = loss
        self._draws = seeds.stream(seed, *name)
        self._ahead = self._distance()

    def after(self, nbytes: int) -> float:
        """Seconds for which the connection stalls once `nbytes` more have left."""
        stalled = 0.0
        self._ahead -= nbytes
        while self._ahead <= 0:
            stalled += self._loss.stall_s
            self._ahead += self._distance()
        return stalled

    def _distance(self) -> int:
        return PACKET_BYTES * int(self._draws.geometric(self._loss.stall_ratio))


def loss_of(shape: Shape) -> Loss | None:
    """What a link's loss does to a connection; None: it loses nothing."""
    return Loss(shape.loss, shape.rtt_s) if shape.loss else None


def rate_of(shape: Shape, direction: Direction, seed: int, client: str) -> Rate:
    """A device's own rate, with the bound of loss and without its stalls.

    Raises:
        ValueError: its trace cannot be read.
    """
    loss = loss_of(shape)
    bound = loss.bound if loss else math.inf
    trace, bps = _of(shape, direction)
    rate: Rate
    if trace is not None:
        rate = TraceRate(read_mahimahi(Path(trace)))
    elif bps is None:
        return ConstantRate(bound) if loss else Unlimited()
    elif not shape.fading:
        return ConstantRate(min(bound, bps / 8))
    else:
        name = ("fading", client, direction)
        times = shape.fading_time_s, shape.fading_step_s
        return Fading(bps / 8, shape.fading, *times, seed, name, bound)
    return Capped(rate, bound) if loss else rate


def mean_bps(shape: Shape, direction: Direction) -> float | None:
    """Bits per second in the long run, with what loss leaves of them; None: no limit."""
    loss = loss_of(shape)
    bound = loss.bound if loss else math.inf
    trace, bps = _of(shape, direction)
    if trace is not None:
        mean = min(bound, TraceRate(read_mahimahi(Path(trace))).mean)
    else:
        mean = bound if bps is None else _mean_below(bound, bps / 8, shape.fading)
    if loss:
        mean = loss.left_of(mean)
    return None if math.isinf(mean) else 8 * mean


def _of(shape: Shape, direction: Direction) -> tuple[str | None, float | None]:
    if direction == "down":
        return shape.trace_down, shape.down_bps
    return shape.trace_up, shape.up_bps


def _mean_below(bound: float, mean: float, sigma: float) -> float:
    """The mean of min(bound, L), where L is log-normal with `mean`."""
    if not sigma or math.isinf(bound):
        return min(bound, mean)
    away = math.log(bound / mean) / sigma
    below, above = NormalDist().cdf(away - sigma / 2), NormalDist().cdf(-away - sigma / 2)
    return mean * below + bound * above


def read_mahimahi(path: Path) -> tuple[int, ...]:
    """The lines of a trace in Mahimahi's format: milliseconds, ascending; at the last it loops.

    Raises:
        ValueError: there is no such file, or it is not a trace; the message says where.
    """
    try:
        status = path.stat()
        return _read(path, status.st_mtime_ns)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None


@lru_cache(maxsize=32)
def _read(path: Path, changed_ns: int) -> tuple[int, ...]:
    """As `read_mahimahi`; a thousand devices may have one trace, which is read once."""
    lines: list[int] = []
    for number, text in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            line = int(text)
        except ValueError:
            shown = text[:40].decode(errors="replace")
            raise ValueError(
                f"{path}, line {number}: expected a whole number of milliseconds, found {shown!r}"
            ) from None
        if line < (lines[-1] if lines else 0):
            raise ValueError(
                f"{path}, line {number}: {line} is less than the line before; "
                f"milliseconds ascend from 0"
            )
        lines.append(line)
    if not lines:
        raise ValueError(f"{path} is empty; a trace has a line for each 1500 bytes that may pass")
    if not lines[-1]:
        raise ValueError(f"{path} ends at millisecond 0; its last line is how long the trace is")
    return tuple(lines)
