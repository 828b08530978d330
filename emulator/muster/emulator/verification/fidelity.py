"""Judges what a link does besides its rates and round trips: delays one way, jitter, lost packets,
queues, slow start and handovers."""

import math
from collections.abc import Sequence
from statistics import median, quantiles

import numpy as np

from muster.common.rates.recording import DIRECTIONS, Direction
from muster.common.seeds import FloatArray
from muster.common.slow_start import slow_start_s
from muster.emulator.gateway.flows import LEAST_SLICES, slice_bytes
from muster.emulator.gateway.loss import PACKET_BYTES, loss_of
from muster.emulator.gateway.rates import InterruptedRate, rate_of, rate_of_limit
from muster.emulator.verification.echoes import EchoDelays
from muster.emulator.verification.expectations import drawn_delays, error_of_drawn_median
from muster.emulator.verification.measuring import LinkMeasurement, MeasuredLink
from muster.emulator.verification.reflector import ECHO_BYTES
from muster.emulator.verification.result import SHARED, Quantity, Row, Tolerances, compared

_ERRORS = 3.0
_LEAST_ECHOES = 20
_DELAY: dict[Direction, Quantity] = {"up": "delay up", "down": "delay down"}
_QUEUE: dict[Direction, Quantity] = {"up": "queue up", "down": "queue down"}
_START: dict[Direction, Quantity] = {"up": "start up", "down": "start down"}
_GAP: dict[Direction, Quantity] = {"up": "gap up", "down": "gap down"}


def needs_echoes(line: MeasuredLink) -> bool:
    """Whether many echoes are needed to judge a link."""
    shape = line.shape
    return bool(shape.skew_s or shape.loses or shape.jitter_s)


def judge_echoes(
    line: MeasuredLink, echoes: Sequence[EchoDelays], tolerances: Tolerances
) -> list[Row]:
    """The rows of delays one way, of jitter, and of echoes that are late because a packet was
    lost, as far as the link has these."""
    if len(echoes) < _LEAST_ECHOES:
        quantity: Quantity = "late echoes" if line.shape.loses else "jitter"
        return [_failed(line, quantity, f"only {len(echoes)} echoes came back")]
    rows = []
    if line.shape.skew_s:
        rows += [_one_way(line, each, echoes, tolerances) for each in DIRECTIONS]
    if line.shape.jitter_s:
        rows.append(_jitter(line, echoes, tolerances))
    if line.shape.loses:
        rows.append(_late(line, echoes))
    return rows


def _steady(line: MeasuredLink) -> bool:
    """Whether nothing but jitter and lost packets delays a message on an idle link."""
    traced = any(line.shape.trace(direction) is not None for direction in DIRECTIONS)
    return not traced and line.shape.handover_time_s is None


def _drawn(line: MeasuredLink, direction: Direction) -> FloatArray:
    """Delays of a direction as the link should have them, and the time of an echo's bits."""
    bits_s = 8 * ECHO_BYTES / mean if (mean := line.mean_bps(direction)) else 0.0
    return drawn_delays(line.shape, direction, line.gateway.config.seed) + bits_s


def _one_way(
    line: MeasuredLink, direction: Direction, echoes: Sequence[EchoDelays], tolerances: Tolerances
) -> Row:
    drawn = _drawn(line, direction)
    asked = float(np.median(drawn))
    found = median(each.up_s if direction == "up" else each.down_s for each in echoes)
    tolerance = max(tolerances.rtt_s, tolerances.rtt * asked) + _error_s(drawn, len(echoes))
    note = f"median of {len(echoes)}"
    return _compared(line, _DELAY[direction], asked, found, _if_steady(line, tolerance), note)


def _jitter(line: MeasuredLink, echoes: Sequence[EchoDelays], tolerances: Tolerances) -> Row:
    """Jitter, by the distance of the quartiles of round trips."""
    drawn = _drawn(line, "up") + _drawn(line, "down")
    low, _, high = (float(each) for each in np.quantile(drawn, (0.25, 0.5, 0.75)))
    late_s = _late_after_s(line)
    trips = [each.up_s + each.down_s for each in echoes if each.up_s + each.down_s < late_s]
    first, _, third = quantiles(trips, n=4)
    tolerance = max(tolerances.rtt_s, tolerances.rtt * (high - low)) + 2 * _error_s(
        drawn, len(trips)
    )
    note = f"between the quartiles of {len(trips)} round trips"
    return _compared(line, "jitter", high - low, third - first, _if_steady(line, tolerance), note)


def _if_steady(line: MeasuredLink, tolerance: float) -> float | None:
    """The tolerance, or None if the link varies in other ways, so that a row is not judged."""
    return tolerance if _steady(line) else None


def _late_after_s(line: MeasuredLink) -> float:
    """Round trips that take longer had a packet lost; infinite: nothing is lost."""
    loss = loss_of(line.shape, "up") or loss_of(line.shape, "down")
    if loss is None:
        return math.inf
    drawn = _drawn(line, "up") + _drawn(line, "down")
    return float(np.median(drawn)) + 0.75 * loss.stall_s


def _late(line: MeasuredLink, echoes: Sequence[EchoDelays]) -> Row:
    """The share of echoes of which a packet was lost in at least one direction."""
    late_s, shares = _late_after_s(line), [line.shape.loss_of(each) for each in ("up", "down")]
    drawn = _drawn(line, "up") + _drawn(line, "down")
    by_jitter = float((drawn > late_s).mean())
    asked = 1 - math.prod(1 - share for share in shares) * (1 - by_jitter)
    found = sum(each.up_s + each.down_s > late_s for each in echoes) / len(echoes)
    error = math.sqrt(asked * (1 - asked) / len(echoes))
    tolerance = _ERRORS * error + 1 / len(echoes)
    note = f"of {len(echoes)} echoes, lost up with {shares[0]:g}, down {shares[1]:g}"
    return _compared(line, "late echoes", asked, found, _if_steady(line, tolerance), note)


def _error_s(drawn: FloatArray, count: int) -> float:
    """Several standard errors of a median of so many delays."""
    return _ERRORS * error_of_drawn_median(drawn, count)


# --- queues --------------------------------------------------------------------------------------


def queue_s(line: MeasuredLink, direction: Direction, since_s: float) -> float:
    """How long a message waits in the queue of a link that another connection keeps full, from a
    second of the gateway on."""
    asked = line.shape.queue_bytes(direction)
    if asked is None or line.shape.queueing == "fair":
        return 0.0
    rate = rate_of(line.shape, direction, line.gateway.config.seed, line.client)
    nbytes = max(asked, LEAST_SLICES * slice_bytes(rate.mean))
    return rate.finish(since_s, nbytes) - since_s


def judge_queue(
    line: MeasuredLink,
    direction: Direction,
    echoes: Sequence[EchoDelays],
    gateway_second_0: float,
    tolerances: Tolerances,
) -> Row:
    """The row of how long echoes wait beside a transfer of another connection.

    Args:
        gateway_second_0: what is added to an instant to get a second of the gateway.
    """
    if not echoes:
        return _failed(line, _QUEUE[direction], "no echo came back")
    alone_s = float(np.median(_drawn(line, direction)))
    asked = median(queue_s(line, direction, each.sent + gateway_second_0) for each in echoes)
    found = median(each.up_s if direction == "up" else each.down_s for each in echoes) - alone_s
    mean = line.mean_bps(direction)
    slice_s = 8 * slice_bytes(mean / 8) / mean if mean else 0.0
    tolerance = max(tolerances.rtt_s, tolerances.rtt * asked) + 2 * slice_s
    tolerance += _error_s(_drawn(line, direction), len(echoes))
    note = f"{line.shape.queueing}; median of {len(echoes)} beside a transfer"
    judged = None if line.shape.loses else tolerance  # a transfer that stalls fills no queue
    return _compared(line, _QUEUE[direction], asked, found, judged, note)


def judge_shared_queue(
    line: MeasuredLink,
    others: Sequence[MeasuredLink],
    direction: Direction,
    echoes: Sequence[EchoDelays],
    gateway_second_0: float,
    tolerances: Tolerances,
) -> Row:
    """The row of how long echoes of one device wait behind transfers of the others in the queue
    that they share.

    Args:
        gateway_second_0: what is added to an instant to get a second of the gateway.
    """
    shared, group = line.gateway.config.shared, line.gateway.group
    nbytes, rate = shared.queue_bytes(direction), rate_of_limit(shared.limit(direction))
    assert nbytes is not None
    if not echoes:
        return Row(group, SHARED, _QUEUE[direction], None, None, False, note="no echo came back")
    waits = [
        rate.finish(each.sent + gateway_second_0, nbytes) - each.sent - gateway_second_0
        for each in echoes
    ]
    drawn = _drawn(line, direction)
    asked = median(waits)
    found = median(each.up_s if direction == "up" else each.down_s for each in echoes)
    found -= float(np.median(drawn))
    tolerance = max(tolerances.rtt_s, tolerances.rtt * asked) + _error_s(drawn, len(echoes))
    tolerance += 2 * slice_bytes(rate.mean) / rate.mean + len(others) * PACKET_BYTES / rate.mean
    note = f"fifo; median of {len(echoes)} of {line.client} beside transfers of others"
    own = [each.mean_bps(direction) for each in others]
    fills = any(bps is None or bps > 8 * rate.peak for bps in own)
    steady = _steady(line) and not any(each.shape.loses for each in others) and fills
    if not steady:
        note += "; the others' own links may not fill it, so this is not judged"
    judged = tolerance if steady else None
    return compared(group, SHARED, _QUEUE[direction], asked, found, judged, note)


# --- slow start and handovers ------------------------------------------------------------------


def judge_transfer(
    line: MeasuredLink, direction: Direction, found: LinkMeasurement, tolerances: Tolerances
) -> list[Row]:
    """The rows of slow start and of handovers, as far as the link has these."""
    return [
        *([] if line.shape.initial_window is None else _start(line, direction, found, tolerances)),
        *([] if line.shape.handover_time_s is None else _gap(line, direction, found, tolerances)),
    ]


def _start(
    line: MeasuredLink, direction: Direction, found: LinkMeasurement, tolerances: Tolerances
) -> list[Row]:
    shape, bps = line.shape, line.mean_bps(direction)
    assert shape.initial_window is not None
    if found.arrivals is None:
        return []
    window = PACKET_BYTES * shape.initial_window
    rounds = 3 if bps is None else min(3, math.ceil(math.log2(bps * shape.rtt_s / 8 / window)))
    if rounds <= 0:
        return []  # the first window fills the link
    nbytes = window * (2**rounds - 1) + 1
    measured = found.arrivals.reached(nbytes)
    asked = slow_start_s(nbytes, bps, shape.rtt_s, window) + (8 * nbytes / bps if bps else 0.0)
    piece_s = 8 * max(PACKET_BYTES, window / 16) / bps if bps else 0.0
    tolerance = max(tolerances.rtt_s, tolerances.rtt * asked) + 0.15 * shape.rtt_s
    tolerance += (rounds + 1) * piece_s + _ERRORS * shape.jitter_s
    note = f"from the first byte of a connection to byte {nbytes:,.0f}"
    varies = line.varies(direction)
    judged = None if varies else tolerance
    if varies:
        note += "; the link varies, so this is not judged"
    return [_compared(line, _START[direction], asked, measured, judged, note)]


def _gap(
    line: MeasuredLink, direction: Direction, found: LinkMeasurement, tolerances: Tolerances
) -> list[Row]:
    rate = rate_of(line.shape, direction, line.gateway.config.seed, line.client)
    if found.arrivals is None or not isinstance(rate, InterruptedRate):
        return []
    since, until, second_0 = found.interval
    silences = [
        found.arrivals.silence_s(begins - second_0 - 0.01, ends - second_0 + line.shape.rtt_s + 0.1)
        for begins, ends in rate.gaps(since + second_0, until + second_0)
    ]
    if not silences:
        note = f"no whole handover in {until - since:.3g} s; measure for longer"
        return [_compared(line, _GAP[direction], rate.gap_s, None, None, note)]
    bps = line.mean_bps(direction)
    slice_s = 8 * slice_bytes(bps / 8) / bps if bps else 0.0
    tolerance = max(tolerances.rtt_s, tolerances.rtt * rate.gap_s) + 2 * slice_s
    tolerance += _ERRORS * line.shape.jitter_s
    note = f"median silence in {len(silences)} handovers"
    judged = None if line.shape.loses or line.shape.trace(direction) else tolerance
    return [_compared(line, _GAP[direction], rate.gap_s, median(silences), judged, note)]


def _compared(
    line: MeasuredLink,
    quantity: Quantity,
    asked: float | None,
    measured: float | None,
    tolerance: float | None,
    note: str,
) -> Row:
    group = line.gateway.group
    return compared(group, line.client, quantity, asked, measured, tolerance, note)


def _failed(line: MeasuredLink, quantity: Quantity, why: str) -> Row:
    return Row(line.gateway.group, line.client, quantity, None, None, ok=False, note=why)
