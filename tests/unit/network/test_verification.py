"""What links are held against, and how what was found is told."""

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from muster.common.fluid import fair_rates
from muster.common.lines import LineTrace
from muster.common.rates.cross_traffic import TrafficLoad
from muster.common.shared_lines import Cell, SharedLine
from muster.emulator.gateway.config import GatewayDevice, GatewayProcess, Ports
from muster.emulator.link_control.running_gateway import RunningGateway
from muster.emulator.links.shape import Shape, SharedState
from muster.emulator.verification.expectations import (
    batches,
    error_of_median_s,
    jain,
    median_of_jitter_s,
    settling_bytes,
)
from muster.emulator.verification.judging import (
    RoundTrips,
    judge_rate,
    judge_rtt,
    judge_shared,
)
from muster.emulator.verification.measuring import (
    LinkMeasurement,
    MeasuredLink,
    MeasuredTransfer,
    Step,
    lines_of,
    measure,
)
from muster.emulator.verification.meter import RateMeter
from muster.emulator.verification.result import Row, Tolerances, Verification, compared
from muster.emulator.verification.tables import describe

MBIT = 1e6


def lines(*shapes: Shape, shared: SharedLine | None = None) -> list[MeasuredLink]:
    """Links of a group "g" whose gateway nobody asks."""
    devices = [GatewayDevice(client=f"g-{i}", shape=shape) for i, shape in enumerate(shapes)]
    config = GatewayProcess(
        group="g",
        seed=1,
        devices=devices,
        shared=shared or SharedLine(),
        upstream="127.0.0.1:9",
        ready="",
        credentials="",
    )
    ports = Ports(host="127.0.0.1", control=1, devices={each.client: 1 for each in devices})
    nobody: Any = None
    return lines_of(RunningGateway(config, ports, nobody))


def measured(*steps: tuple[float, float, float | None], broken: bool = False) -> LinkMeasurement:
    return LinkMeasurement([Step(*step) for step in steps], broken)


# --- arithmetic ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shares", "index"),
    [([5, 5, 5, 5], 1), ([1, 0, 0, 0], 1 / 4), ([1, 2, 3], 36 / 42), ([0, 0], 0)],
)
def test_jains_index(shares: list[float], index: float) -> None:
    assert jain(shares) == index


def test_who_wants_less_than_a_fair_share_leaves_the_rest_to_the_others() -> None:
    wanted = {"a": 8.0, "b": 1.0, "c": math.inf}
    assert fair_rates([*wanted.values()], 10) == [4.5, 1.0, 4.5]
    assert fair_rates([8.0, 1.0], 100) == [8.0, 1.0]


def below(x: float) -> float:
    """Probability that two ways together add at most x standard deviations of jitter."""
    phi = NormalDist().cdf
    return phi(x) - 0.25 + (phi(x / math.sqrt(2)) - 0.5) ** 2


def test_half_of_all_round_trips_get_less_jitter_than_the_median() -> None:
    assert below(median_of_jitter_s(1.0)) == pytest.approx(0.5, abs=1e-12)
    assert median_of_jitter_s(0.05) == pytest.approx(0.05 * median_of_jitter_s(1.0))


def test_the_formula_of_jitter_is_that_of_drawn_numbers() -> None:
    ways = np.maximum(0, np.random.default_rng(1).standard_normal((2, 400_000)))
    both = ways.sum(axis=0)
    assert np.median(both) == pytest.approx(median_of_jitter_s(1.0), abs=0.01)
    # The mean, 2/√(2π), is another number.
    assert both.mean() == pytest.approx(2 / math.sqrt(2 * math.pi), abs=0.01)


def test_the_error_of_a_median_is_that_of_its_density() -> None:
    at, h = median_of_jitter_s(1.0), 1e-5
    density = (below(at + h) - below(at - h)) / (2 * h)
    assert error_of_median_s(1.0, 16) == pytest.approx(1 / (2 * density * 4), rel=1e-4)


def test_four_buffers_pass_first_or_a_second_of_a_slow_link() -> None:
    assert settling_bytes(None) == settling_bytes(100 * MBIT) == 4 * 65536
    assert settling_bytes(0.2 * MBIT) == 25_000


def test_batches_stay_below_what_the_machine_carries() -> None:
    jobs = ["a", "b", "c", "d", "e"]
    found = batches(jobs, [100, 200, 200, 900, 1], limit=400, most=2)
    assert found == [["a", "b"], ["c"], ["d"], ["e"]]
    assert batches(jobs, [1] * 5, limit=400, most=2) == [["a", "b"], ["c", "d"], ["e"]]
    assert batches([], [], limit=400, most=2) == []


def test_a_meter_divides_what_came_between_two_arrivals_evenly() -> None:
    meter = RateMeter()
    meter.add(100, at=1.0)
    meter.add(50, at=2.0)
    assert [meter.received_by(at) for at in (0.5, 1.0, 1.5, 2.0, 9.0)] == [0, 100, 125, 150, 150]


class Slices:
    """A transfer of which a slice arrives now and then, in invented time.

    Args:
        first: when the first slice arrives.
        every_s: between two of them; None: only the first comes.
    """

    def __init__(self, first: float, every_s: float | None, nbytes: int) -> None:
        self.meter = RateMeter()
        self._next, self._every_s, self._nbytes = first, every_s, nbytes

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def until(self, instant: float) -> None:
        """Let what is due by an instant arrive."""
        while self._next <= instant:
            self.meter.add(self._nbytes, at=self._next)
            self._next += self._every_s or math.inf


class Invented:
    """A clock whose sleeps take no time, but in which slices arrive."""

    def __init__(self, *slices: Slices) -> None:
        self._slices, self._now = slices, 0.0

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now

    def pause(self, seconds: float) -> None:
        raise AssertionError("nothing blocks the loop")

    async def sleep_until(self, instant: float) -> None:
        self._now = max(self._now, instant)
        for each in self._slices:
            each.until(self._now)


class Silent:
    """A gateway's controller that knows of no limits."""

    async def stats(self, clients: Collection[str] | None = None) -> Mapping[str, Any]:
        down = {"down": {"capacity": None}}
        return {"devices": {f"g-{i}": down for i in range(32)}}

    async def set_shared(self, state: SharedState) -> None:
        raise AssertionError("nothing is set here")

    async def upstream(self, address: str) -> None:
        raise AssertionError("nothing is set here")


async def measured_of(*slices: Slices, seconds: float = 2.0) -> list[LinkMeasurement]:
    gateway = replace(lines(*([Shape()] * len(slices)))[0].gateway, controller=Silent())
    transfers = [
        MeasuredTransfer(line, "down", each, 1000.0)
        for line, each in zip(lines_of(gateway), slices, strict=True)
    ]
    return await measure(transfers, seconds, 0.2, Invented(*slices))


async def test_slices_that_come_seldom_are_counted_to_the_end_of_the_interval() -> None:
    # 32 devices share 300 kbit/s: each gets 750 bytes every 0.64 s.
    found = await measured_of(*(Slices(i * 0.02, 0.64, 750) for i in range(32)))
    assert sum(each.received_bps for each in found) == pytest.approx(300e3, rel=0.001)
    assert jain([each.received_bps for each in found]) > 0.9999


async def test_a_transfer_that_comes_to_a_halt_is_not_waited_for_without_end() -> None:
    (found,) = await measured_of(Slices(0.0, None, 1000))
    assert found.received_bps == 0.0


# --- judging -------------------------------------------------------------------------------------


def test_a_steady_link_is_held_against_what_was_asked() -> None:
    (line,) = lines(Shape(up_bps=2 * MBIT))
    good = judge_rate(line, "up", measured((1, 1.94 * MBIT, None)), Tolerances())
    bad = judge_rate(line, "up", measured((1, 1.88 * MBIT, None)), Tolerances())
    assert (good.asked, good.ok, bad.ok) == (2 * MBIT, True, False)
    assert bad.deviation == pytest.approx(-0.06)


def test_a_gateways_own_word_excuses_no_steady_link() -> None:
    (line,) = lines(Shape(up_bps=2 * MBIT))
    row = judge_rate(line, "up", measured((1, 1 * MBIT, 1 * MBIT)), Tolerances())
    assert (row.asked, row.ok) == (2 * MBIT, False)


def test_a_link_that_varies_is_held_against_what_it_allowed_meanwhile() -> None:
    (line,) = lines(Shape(down_bps=2 * MBIT, fading=0.5))
    steps = measured((1, 3 * MBIT, 3 * MBIT), (3, 1 * MBIT, 1 * MBIT))
    row = judge_rate(line, "down", steps, Tolerances())
    assert (row.asked, row.ok) == (1.5 * MBIT, True)
    assert row.note == "varies; asked: what it allowed meanwhile; mean 2 Mbit/s"


def test_without_a_limit_there_is_nothing_to_compare() -> None:
    (line,) = lines(Shape())
    row = judge_rate(line, "up", measured((1, 900 * MBIT, None)), Tolerances())
    assert (row.asked, row.ok, row.note) == (None, None, "no limit asked")
    assert judge_rtt(line, RoundTrips(0.001, 20), Tolerances()).ok is None


def test_a_link_that_broke_says_so() -> None:
    (line,) = lines(Shape(up_bps=2 * MBIT))
    row = judge_rate(line, "up", measured((1, 0, None), broken=True), Tolerances())
    assert (row.ok, row.note) == (False, "the connection broke")


def test_round_trips_may_be_five_milliseconds_off_or_the_share_that_is_more() -> None:
    fast, slow = lines(Shape(rtt_s=0.01), Shape(rtt_s=0.6))
    tolerances = Tolerances()
    assert judge_rtt(fast, RoundTrips(0.0149, 20), tolerances).ok
    assert not judge_rtt(fast, RoundTrips(0.0151, 20), tolerances).ok
    assert judge_rtt(slow, RoundTrips(0.629, 20), tolerances).ok
    assert not judge_rtt(slow, RoundTrips(0.631, 20), tolerances).ok


def test_jitter_belongs_to_what_is_asked_of_a_round_trip() -> None:
    (line,) = lines(Shape(rtt_s=0.3, jitter_s=0.05))
    row = judge_rtt(line, RoundTrips(0.33, 20), Tolerances())
    assert row.asked == pytest.approx(0.3 + median_of_jitter_s(0.05))
    assert row.asked is not None
    assert row.tolerance == pytest.approx(0.05 * row.asked + 3 * error_of_median_s(0.05, 20))


def test_no_answer_is_outside() -> None:
    (line,) = lines(Shape(rtt_s=0.1))
    row = judge_rtt(line, RoundTrips(None, 0, "no answer within 5.4 s"), Tolerances())
    assert (row.measured, row.ok, row.note) == (None, False, "no answer within 5.4 s")


def test_a_shared_link_is_held_against_max_min_fair_shares() -> None:
    shapes = Shape(up_bps=1 * MBIT), Shape(up_bps=9 * MBIT), Shape()
    links = lines(*shapes, shared=SharedLine(up_bps=6 * MBIT))
    got = [measured((2, rate * MBIT, None)) for rate in (1, 2.5, 2.5)]
    total, fairness = judge_shared(links, 3, "up", got, Tolerances())
    assert (total.link, total.asked, total.measured, total.ok) == ("shared", 6e6, 6e6, True)
    assert (fairness.measured, fairness.ok) == (1.0, True)


def test_devices_that_starve_others_are_outside_though_the_sum_is_right() -> None:
    links = lines(Shape(), Shape(), shared=SharedLine(down_bps=6 * MBIT))
    got = [measured((2, 5 * MBIT, None)), measured((2, 1 * MBIT, None))]
    total, fairness = judge_shared(links, 2, "down", got, Tolerances())
    assert total.ok
    assert not fairness.ok
    assert fairness.measured == pytest.approx(36 / (2 * 26))


def test_a_shared_link_that_is_never_full_is_held_against_what_devices_may() -> None:
    shared = SharedLine(up_bps=10 * MBIT)
    links = lines(Shape(up_bps=1 * MBIT), Shape(up_bps=2 * MBIT), shared=shared)
    got = [measured((2, 1 * MBIT, None)), measured((2, 2 * MBIT, None))]
    total, _ = judge_shared(links, 5, "up", got, Tolerances())
    assert (total.asked, total.ok) == (3 * MBIT, True)
    assert total.note == "2 of 5 devices at once; their own rates allow less than 10 Mbit/s"


def test_in_every_step_who_is_slow_leaves_his_share_to_the_others() -> None:
    fading = Shape(up_bps=4 * MBIT, fading=1.0)
    got = [
        measured((1, 1 * MBIT, 1 * MBIT), (1, 3 * MBIT, 9 * MBIT)),
        measured((1, 5 * MBIT, 9 * MBIT), (1, 3 * MBIT, 9 * MBIT)),
    ]
    links = lines(fading, fading, shared=SharedLine(up_bps=6 * MBIT))
    total, fairness = judge_shared(links, 2, "up", got, Tolerances())
    assert (total.asked, total.measured, fairness.measured) == (6 * MBIT, 6 * MBIT, 1.0)


def test_a_shared_link_that_varies_is_held_against_what_it_allowed_meanwhile() -> None:
    trace = LineTrace(direction="up", bps=6e6, loads=(TrafficLoad(bps=4e6, on_s=1.0, off_s=1.0),))
    whole = trace.whole()
    shared = SharedLine(up_bps=whole.mean_bps, up_traces=(trace,))
    links = lines(Shape(), Shape(), shared=shared)
    allowed = [whole.total(each + 1) - whole.total(each) for each in (0.0, 1.0)]
    got = [measured(*((1, bits / 2, None) for bits in allowed)) for _ in links]
    total, fairness, others = judge_shared(links, 2, "up", got, Tolerances())
    assert total.asked == pytest.approx(sum(allowed) / 2)
    assert total.ok
    assert "varies" in total.note
    assert fairness.ok
    assert (others.link, others.quantity, others.ok) == ("shared", "cross up", True)
    assert others.asked == others.measured == pytest.approx(6e6 - sum(allowed) / 2)


def test_cross_traffic_that_was_off_is_not_judged() -> None:
    bursts = TrafficLoad(bps=4e6, on_s=1.0, off_s=1000.0)
    trace = LineTrace(direction="up", bps=6e6, loads=(bursts,))
    shared = SharedLine(up_bps=trace.whole().mean_bps, up_traces=(trace,))
    got = [measured((2, 3e6, None)) for _ in "ab"]
    *_, row = judge_shared(lines(Shape(), Shape(), shared=shared), 2, "up", got, Tolerances())
    assert row.ok is None
    assert "hardly any was on" in row.note


def of_others(shape: Shape, *got_bps: float) -> Row:
    """The row of cross traffic in a cell in which two of three devices are."""
    trace = LineTrace(direction="up", bps=6e6, loads=(TrafficLoad(bps=4e6),))
    cell = Cell(up_bps=trace.whole().mean_bps, up_traces=(trace,))
    inside = shape.model_copy(update={"cell": "shared"})
    links = lines(inside, inside, Shape(up_bps=1e6), shared=SharedLine(cells={"shared": cell}))
    got = [measured((2, bps, None)) for bps in got_bps]
    *_, row = judge_shared(links, 3, "up", got, Tolerances())
    return row


def test_cross_traffic_of_a_cell_is_what_its_devices_did_not_get() -> None:
    right, too_little = of_others(Shape(), 1e6, 1e6, 1e6), of_others(Shape(), 1.5e6, 1.5e6, 1e6)
    assert (right.link, right.asked, right.measured, right.ok) == ("cell shared", 4e6, 4e6, True)
    assert (too_little.measured, too_little.ok) == (3e6, False)


def test_devices_that_do_not_fill_a_link_say_nothing_of_its_cross_traffic() -> None:
    row = of_others(Shape(up_bps=0.5e6), 0.5e6, 0.5e6, 1e6)
    assert row.ok is None
    assert "they do not fill the link" in row.note


# --- telling -------------------------------------------------------------------------------------


def made_up() -> Verification:
    return Verification(
        "three-groups",
        5.0,
        Tolerances(),
        [
            compared("rural", "rural-0001", "rtt", 0.3, 0.3123, 0.015, "median of 20"),
            compared("rural", "rural-0001", "rate up", 750e3, 600e3, 0.05),
            compared("rural", "shared", "fairness up", 1.0, 0.998, 0.05, "Jain's index"),
            compared("rural", "rural-0001", "grpc up", 750e3, 741e3, None),
            Row("rural", "rural-0002", "rtt", 0.3, None, ok=False, note="no answer"),
            compared("open", "open-0000", "rate down", None, 8.1e9, None, "no limit asked"),
        ],
    )


TABLE = """\
three-groups: rates over 5 s each, TCP payload at the receiver

  group  link        quantity          asked    measured  deviation  tolerance      note
  rural  rural-0001  rtt            300.0 ms    312.3 ms   +12.3 ms   ±15.0 ms  ok  median of 20
  rural  rural-0001  rate up      750 kbit/s  600 kbit/s    -20.0 %     ±5.0 %  NO
  rural  shared      fairness up       1.000       0.998     -0.002     ±0.050  ok  Jain's index
  rural  rural-0001  grpc up      750 kbit/s  741 kbit/s     -1.2 %
  rural  rural-0002  rtt            300.0 ms           –                        NO  no answer
  open   open-0000   rate down             –  8.1 Gbit/s                            no limit asked

2 of 4 are outside their tolerances.
Rows without a verdict are for information: no limit was asked, or they are gRPC's."""


def test_a_verification_as_a_table() -> None:
    assert describe(made_up()) == TABLE


def test_a_verification_as_json() -> None:
    found = json.loads(json.dumps(made_up().to_json()))
    assert list(found) == ["scenario", "ok", "seconds", "tolerances", "rows"]
    assert (found["scenario"], found["ok"], found["seconds"]) == ("three-groups", False, 5.0)
    assert found["tolerances"] == {"rate": 0.05, "rtt": 0.05, "rtt_s": 0.005, "fairness": 0.95}
    assert found["rows"][1] == {
        "group": "rural",
        "link": "rural-0001",
        "quantity": "rate up",
        "asked": 750e3,
        "measured": 600e3,
        "deviation": pytest.approx(-0.2),
        "tolerance": 0.05,
        "ok": False,
        "note": "",
        "loaded": False,
        "unit": "bit/s",
    }
    assert [row["unit"] for row in found["rows"]] == ["s", "bit/s", "1", "bit/s", "s", "bit/s"]


def test_what_is_for_information_never_fails() -> None:
    rows = [compared("g", "g-0", "grpc up", 1e6, 1e3, None)]
    assert Verification("x", 1.0, Tolerances(), rows).ok
