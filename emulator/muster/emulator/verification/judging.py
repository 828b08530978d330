"""Judges measurements: compares each with its expected value and tolerance, and returns rows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from muster.common.fluid import tree_rates
from muster.common.lines import Limit
from muster.common.rates.recording import Direction
from muster.common.units import bandwidth_text
from muster.emulator.gateway.flows import slice_bytes
from muster.emulator.gateway.loss import PACKET_BYTES, loss_of
from muster.emulator.gateway.rates import Rate, rate_of_limit
from muster.emulator.verification.echo_model import EchoModel, SentEcho
from muster.emulator.verification.expectations import (
    added_by_jitter_s,
    error_by_jitter_s,
    jain,
)
from muster.emulator.verification.measuring import LinkMeasurement, MeasuredLink, Step
from muster.emulator.verification.reflector import ECHO_BYTES
from muster.emulator.verification.result import SHARED, Quantity, Row, Tolerances, compared

_ERRORS = 3.0
"""Number of standard errors, of jitter and of stalls, that are added to a tolerance."""

_FULL = 0.01
"""Devices that should have less than a link leaves, by more than this share, do not fill it; and
cross traffic below this share of a link is too little to be seen."""

_RATE: dict[Direction, Quantity] = {"up": "rate up", "down": "rate down"}
_GRPC: dict[Direction, Quantity] = {"up": "grpc up", "down": "grpc down"}
_CROSS: dict[Direction, Quantity] = {"up": "cross up", "down": "cross down"}
_FAIRNESS: dict[Direction, Quantity] = {"up": "fairness up", "down": "fairness down"}


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """The result of echoes: their median round trip, or why there is none.

    Attributes:
        sent: if the link varies, the echoes as its gateway saw them.
    """

    median_s: float | None
    count: int
    why: str = ""
    sent: list[SentEcho] = field(default_factory=list)


def expected_rtt_s(line: MeasuredLink) -> float:
    """Expected median round trip of an echo: the delay, the time that jitter adds, and the time of
    its bits in both directions."""
    found = line.shape.rtt_s + _added_s(line)
    for direction in _RATE:
        if mean := line.mean_bps(direction):
            found += 8 * ECHO_BYTES / mean
    return found


def _added_s(line: MeasuredLink) -> float:
    """Median of the time that jitter adds to a round trip."""
    return added_by_jitter_s(line.shape, line.gateway.config.seed)


def judge_rtt(line: MeasuredLink, found: RoundTrips, tolerances: Tolerances) -> Row:
    """The row of a link's round trip."""
    if found.median_s is None:
        return _failed(line, "rtt", expected_rtt_s(line), found.why)
    note = f"median of {found.count}"
    if not line.shaped:
        return compared(line.gateway.group, line.client, "rtt", None, found.median_s, None, note)
    asked, jitter_s = expected_rtt_s(line), line.shape.jitter_s
    tolerance = max(tolerances.rtt_s, tolerances.rtt * asked)
    if jitter_s:
        seed = line.gateway.config.seed
        tolerance += _ERRORS * error_by_jitter_s(line.shape, found.count, seed)
        note += f"; jitter adds {1000 * _added_s(line):.0f} ms to the median"
    if found.sent:
        implied = EchoModel(line).implied(found.sent, tolerance)
        asked = implied.asked_s + _added_s(line)
        tolerance = max(tolerance, implied.late_s)
        note += "; varies; asked: what it implied meanwhile"
    return compared(line.gateway.group, line.client, "rtt", asked, found.median_s, tolerance, note)


def judge_rate(
    line: MeasuredLink, direction: Direction, found: LinkMeasurement, tolerances: Tolerances
) -> Row:
    """The row of a link's rate in one direction."""
    return _rate(line, _RATE[direction], direction, found, tolerances)


def grpc_rate_row(line: MeasuredLink, direction: Direction, found: LinkMeasurement) -> Row:
    """The row of the rate that gRPC achieves, for information."""
    return _rate(line, _GRPC[direction], direction, found, None)


def grpc_rtt_row(line: MeasuredLink, found: RoundTrips) -> Row:
    """The row of gRPC's round trip, for information."""
    note = found.why or f"median of {found.count}"
    asked = expected_rtt_s(line) if line.shaped else None
    if found.sent:
        asked = EchoModel(line).implied(found.sent, 0.0).asked_s
        asked += _added_s(line)
    return compared(line.gateway.group, line.client, "grpc rtt", asked, found.median_s, None, note)


def _rate(
    line: MeasuredLink,
    quantity: Quantity,
    direction: Direction,
    found: LinkMeasurement,
    tolerances: Tolerances | None,
) -> Row:
    mean, notes = line.mean_bps(direction), []
    asked = tolerance = None
    if mean is None:
        notes.append("no limit asked")
    elif not line.varies(direction):
        asked = mean
    else:
        asked = math.fsum(s.seconds * _own_bps(line, direction, s) for s in found.steps)
        asked /= found.seconds
        notes.append(f"varies; asked: what it allowed meanwhile; mean {_text(mean)}")
    if asked is not None and tolerances is not None:
        tolerance = tolerances.rate + _chance([line], direction, found.seconds)
    if asked is not None and tolerance is not None and mean and line.varies(direction):
        slice_bits = 8 * slice_bytes(mean / 8)
        if asked * found.seconds < slice_bits:
            asked, tolerance = None, None
            notes.append("it allowed too little meanwhile to compare; measure for longer")
        else:  # a slice that began in the interval, or before it, may end outside
            tolerance += slice_bits / (asked * found.seconds)
    if found.broken:
        notes.append("the connection broke")
    return compared(
        line.gateway.group,
        line.client,
        quantity,
        asked,
        found.received_bps,
        tolerance,
        "; ".join(notes),
    )


def judge_shared(
    lines: Sequence[MeasuredLink],
    of: int,
    direction: Direction,
    found: Sequence[LinkMeasurement],
    tolerances: Tolerances,
) -> list[Row]:
    """The rows of a shared link that devices of a group use at once: the sum of their rates,
    fairness, and cross traffic.

    Args:
        of: number of devices of the group.
        found: the measurements of `lines`, over the same steps.
    """
    group, shared = lines[0].gateway.group, lines[0].gateway.config.shared
    paths = [shared.path(line.shape.cell) for line in lines]
    limit, limits = shared.limit(direction), shared.cell_limits(direction)
    rate, cells = rate_of_limit(limit), {name: rate_of_limit(of) for name, of in limits.items()}
    begins, _, second_0 = found[0].interval
    since_s = begins + second_0
    expected = dict.fromkeys((line.client for line in lines), 0.0)  # bits
    for steps in zip(*(each.steps for each in found), strict=True):
        wanted = [_own_bps(line, direction, step) for line, step in zip(lines, steps, strict=True)]
        span = since_s, since_s + steps[0].seconds
        caps = {name: _mean_bps(cell, *span) for name, cell in cells.items()}
        shares = tree_rates(wanted, _mean_bps(rate, *span), paths, caps)
        since_s = span[1]
        for line, share in zip(lines, shares, strict=True):
            expected[line.client] += share * steps[0].seconds
    seconds = found[0].seconds
    got = {line.client: each.received_bps for line, each in zip(lines, found, strict=True)}
    asked = math.fsum(expected.values()) / seconds
    note = f"{len(lines)} of {of} devices at once" if of > len(lines) else f"{of} devices at once"
    varies = any(of.traces for of in (limit, *limits.values()))
    if not varies and asked < limit.bps * (1 - 1e-9) < math.inf:
        note += f"; their own rates allow less than {_text(limit.bps)}"
    if any(each.broken for each in found):
        note += "; a connection broke"
    tolerance = tolerances.rate + _chance(lines, direction, seconds)
    if varies:
        note += "; varies; asked: what it allowed meanwhile"
        tolerance += 8 * slice_bytes(asked / 8) / (asked * seconds) if asked else 0.0
    index = jain([got[client] * seconds / bits for client, bits in expected.items()])
    span = begins + second_0, begins + second_0 + seconds
    others = []
    for cell, part in [(None, limit), *limits.items()]:
        inside = {
            line.client: (expected[line.client] / seconds, got[line.client])
            for line, path in zip(lines, paths, strict=True)
            if cell is None or cell in path
        }
        if inside and any(trace.loads for trace in part.traces):
            others.append(_cross_traffic(group, cell, direction, part, span, inside, tolerance))
    return [
        compared(group, SHARED, _RATE[direction], asked, math.fsum(got.values()), tolerance, note),
        compared(
            group, SHARED, _FAIRNESS[direction], 1.0, index, tolerances.unfairness, "Jain's index"
        ),
        *others,
    ]


def _cross_traffic(
    group: str,
    cell: str | None,
    direction: Direction,
    limit: Limit,
    span: tuple[float, float],
    devices: Mapping[str, tuple[float, float]],
    tolerance: float,
) -> Row:
    """The row of what others take of a link or a cell: its rate without what its devices got,
    while they wanted all that was left.

    Args:
        span: the seconds of the gateway in which it was measured.
        devices: the rates that they should have, and those that they had.
        tolerance: of the sum of their rates.
    """
    [trace] = limit.traces
    left_bps = _mean_bps(rate_of_limit(limit), *span)
    alone = limit._replace(traces=(trace.model_copy(update={"loads": ()}),))
    whole_bps = _mean_bps(rate_of_limit(alone), *span)
    asked = max(0.0, whole_bps - left_bps)
    wanted_bps, got_bps = (math.fsum(rates) for rates in zip(*devices.values(), strict=True))
    note = f"of {_text(whole_bps)}, what {len(devices)} devices at once did not get"
    judged = None
    if asked < _FULL * whole_bps:
        note += "; hardly any was on meanwhile, so this is not judged; measure for longer"
    elif wanted_bps < (1 - _FULL) * left_bps:
        note += "; they do not fill the link, so this is not judged"
    else:
        judged = tolerance * left_bps / asked
    link = SHARED if cell is None else f"cell {cell}"
    measured = max(0.0, whole_bps - got_bps)
    return compared(group, link, _CROSS[direction], asked, measured, judged, note)


def _own_bps(line: MeasuredLink, direction: Direction, step: Step) -> float:
    """Bits per second that a link's own rate should let through in a step; infinite: no limit."""
    mean = line.mean_bps(direction)
    if mean is None:
        return math.inf
    if not line.varies(direction) or step.allowed_bps is None:
        return mean
    loss = loss_of(line.shape, direction)
    return 8 * loss.left_of(step.allowed_bps / 8) if loss else step.allowed_bps


def _mean_bps(rate: Rate, since_s: float, until_s: float) -> float:
    """What a shared rate allows between two seconds of its gateway; infinite: no limit."""
    return 8 * rate.capacity(since_s, until_s) / (until_s - since_s)


def _chance(lines: Sequence[MeasuredLink], direction: Direction, seconds: float) -> float:
    """Relative deviation that chance may cause in a rate measured over so many seconds.

    Jitter moves the first and the last byte of the interval. Stalls are independent events: if k of
    them are expected, their standard deviation is √k.
    """
    jitter = max(line.shape.jitter_s for line in lines) / seconds
    stalled = 0.0
    for line in lines:
        loss, mean = loss_of(line.shape, direction), line.mean_bps(direction)
        if loss and mean:
            expected = mean / 8 * seconds / PACKET_BYTES * loss.stall_ratio
            stalled = max(stalled, math.sqrt(expected) * loss.stall_s / seconds)
    return jitter + _ERRORS * stalled


def _failed(line: MeasuredLink, quantity: Quantity, asked: float | None, why: str) -> Row:
    return Row(line.gateway.group, line.client, quantity, asked, None, ok=False, note=why)


def _text(bps: float) -> str:
    return bandwidth_text(float(f"{bps:.3g}"))
