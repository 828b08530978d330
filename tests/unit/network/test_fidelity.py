"""How delays, losses, queues, slow start and handovers are judged, from invented measurements."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from muster.common.jitter import delays
from muster.common.shared_lines import SharedLine
from muster.emulator.gateway.config import GatewayDevice, GatewayProcess, Ports
from muster.emulator.gateway.rates import InterruptedRate, rate_of
from muster.emulator.link_control.running_gateway import RunningGateway
from muster.emulator.links.shape import Shape
from muster.emulator.verification.echoes import EchoDelays
from muster.emulator.verification.fidelity import judge_echoes, judge_queue, judge_transfer
from muster.emulator.verification.load import gateway_lateness_s, unjudged
from muster.emulator.verification.measuring import LinkMeasurement, MeasuredLink, lines_of
from muster.emulator.verification.meter import RateMeter
from muster.emulator.verification.result import Row, Tolerances, Verification, compared
from muster.emulator.verification.tables import describe

WITHIN = Tolerances()


def line(**shape: Any) -> MeasuredLink:
    config = GatewayProcess(
        group="g",
        seed=1,
        devices=[GatewayDevice(client="g-0", shape=Shape(**shape))],
        shared=SharedLine(),
        upstream="127.0.0.1:9",
        ready="",
        credentials="",
    )
    ports = Ports(host="127.0.0.1", control=1, devices={"g-0": 1})
    nobody: Any = None
    [found] = lines_of(RunningGateway(config, ports, nobody))
    return found


def echoes(shape: Shape, count: int = 400, lost: float = 0.0) -> list[EchoDelays]:
    """Echoes over a link like this, of which each packet is lost with a probability."""
    draws = np.random.default_rng(5)
    ways = [
        delays(shape.jitter_distribution, shape.delay_s(way), shape.jitter_s, draws, count)
        + 0.2 * (draws.random(count) < lost)
        for way in ("up", "down")
    ]
    return [
        EchoDelays(0.0, up, down) for up, down in zip(*map(np.ndarray.tolist, ways), strict=True)
    ]


def verdicts(rows: list[Row]) -> dict[str, bool | None]:
    return {row.quantity: row.ok for row in rows}


def test_delays_one_way_are_told_from_each_other() -> None:
    asked = line(rtt_s=0.12, skew_s=0.06)
    good = judge_echoes(asked, echoes(asked.shape), WITHIN)
    assert verdicts(good) == {"delay up": True, "delay down": True}
    assert [row.asked for row in good] == pytest.approx([0.09, 0.03])
    symmetric = echoes(Shape(rtt_s=0.12))
    assert verdicts(judge_echoes(asked, symmetric, WITHIN)) == {
        "delay up": False,
        "delay down": False,
    }


@pytest.mark.parametrize("distribution", ["late", "normal", "uniform", "pareto"])
def test_jitter_is_told_from_more_of_it(distribution: str) -> None:
    asked = line(rtt_s=0.2, jitter_s=0.03, jitter_distribution=distribution)
    assert verdicts(judge_echoes(asked, echoes(asked.shape), WITHIN)) == {"jitter": True}
    more = asked.shape.model_copy(update={"jitter_s": 0.06})
    assert verdicts(judge_echoes(asked, echoes(more), WITHIN)) == {"jitter": False}


def test_lost_packets_are_counted_by_echoes_that_are_late() -> None:
    asked = line(rtt_s=0.05, loss=0.05)
    [row] = judge_echoes(asked, echoes(asked.shape, lost=0.05), WITHIN)
    assert (row.quantity, row.ok) == ("late echoes", True)
    assert row.asked == pytest.approx(1 - 0.95**2)
    for lost in (0.0, 0.2):
        [row] = judge_echoes(asked, echoes(asked.shape, lost=lost), WITHIN)
        assert row.ok is False
    [row] = judge_echoes(asked, echoes(asked.shape, count=3), WITHIN)
    assert (row.ok, row.note) == (False, "only 3 echoes came back")


def test_what_else_varies_leaves_delays_without_a_verdict() -> None:
    asked = line(rtt_s=0.05, loss=0.05, handover_time_s=5.0, handover_gap_s=0.5)
    [row] = judge_echoes(asked, echoes(asked.shape), WITHIN)
    assert row.ok is None


@pytest.mark.parametrize(("waits_s", "ok"), [(0.5, True), (0.1, False), (0.8, False)])
def test_a_full_fifo_delays_by_queue_over_rate(waits_s: float, ok: bool) -> None:
    asked = line(up_bps=2e6, rtt_s=0.04, queue_up_bytes=131_072, queueing="fifo")
    found = [EchoDelays(float(n), 0.02 + waits_s, 0.02) for n in range(9)]
    row = judge_queue(asked, "up", found, 0.0, WITHIN)
    assert row.asked == pytest.approx(0.524, abs=0.001)
    assert row.ok is ok
    fair = line(up_bps=2e6, rtt_s=0.04, queue_up_bytes=131_072)
    assert judge_queue(fair, "up", found, 0.0, WITHIN).ok is False
    passing = [EchoDelays(float(n), 0.035, 0.02) for n in range(9)]
    assert judge_queue(fair, "up", passing, 0.0, WITHIN).ok is True


def test_a_queue_before_a_rate_that_varies_is_compared_with_what_the_rate_allowed() -> None:
    link = {"handover_time_s": 4.0, "handover_gap_s": 1.0, "queue_up_bytes": 25_000.0}
    asked = line(up_bps=1e6, queueing="fifo", **link)
    rate = rate_of(asked.shape, "up", 1, "g-0")
    instants = [0.3 * n for n in range(40)]
    found = [EchoDelays(at, rate.finish(at + 7.0, 25_000) - at - 7.0, 0.0) for at in instants]
    row = judge_queue(asked, "up", found, 7.0, WITHIN)
    assert row.ok is True


def measured(arrivals: list[tuple[float, int]], until: float) -> LinkMeasurement:
    meter = RateMeter()
    for at, nbytes in arrivals:
        meter.add(nbytes, at)
    return LinkMeasurement([], False, meter, (0.0, until, 100.0))


@pytest.mark.parametrize(("doubles_every_s", "ok"), [(0.3, True), (0.0, False), (0.6, False)])
def test_slow_start_is_told_from_none(doubles_every_s: float, ok: bool) -> None:
    asked = line(up_bps=20e6, rtt_s=0.3, initial_window=10)
    arrivals = [(number * doubles_every_s, 14_600 * 2**number) for number in range(5)]
    [row] = judge_transfer(asked, "up", measured(arrivals, 5.0), WITHIN)
    assert (row.quantity, row.ok) == ("start up", ok)
    assert row.asked == pytest.approx(0.9, abs=0.01)


def test_a_first_window_that_fills_the_link_is_not_looked_for() -> None:
    asked = line(up_bps=1e6, rtt_s=0.05, initial_window=10)
    assert judge_transfer(asked, "up", measured([(0.0, 100)], 1.0), WITHIN) == []


@pytest.mark.parametrize("passes", [False, True])
def test_the_silence_of_a_handover_is_measured(passes: bool) -> None:
    asked = line(up_bps=2e6, rtt_s=0.02, handover_time_s=3.0, handover_gap_s=0.4)
    rate = rate_of(asked.shape, "up", 1, "g-0")
    assert isinstance(rate, InterruptedRate)
    gaps = list(rate.gaps(100.0, 130.0))
    assert gaps
    arrivals = [
        (at, 2500)
        for at in (0.01 * n for n in range(3000))
        if passes or not any(begins < at + 100 < ends for begins, ends in gaps)
    ]
    [row] = judge_transfer(asked, "up", measured(arrivals, 30.0), WITHIN)
    assert row.ok is not passes
    [none] = judge_transfer(asked, "up", measured(arrivals, 0.001), WITHIN)
    assert (none.ok, none.measured) == (None, None)
    assert "measure for longer" in none.note


def test_what_is_outside_while_the_machine_was_late_is_not_judged() -> None:
    rows = [
        compared("g", "a", "rtt", 0.05, 0.09, 0.005),
        compared("g", "b", "rtt", 0.05, 0.051, 0.005),
        compared("g", "c", "rate up", 1e6, 0.5e6, 0.05),
        Row("g", "d", "rtt", 0.05, None, ok=False, note="no echo came back"),
    ]
    assert unjudged(rows, 0.001, WITHIN) == rows
    late = unjudged(rows, 0.030, WITHIN)
    assert [row.loaded for row in late] == [True, False, True, True]
    assert late[0].note == "the machine was too loaded to judge: 30 ms late"
    wide = [replace(rows[0], tolerance=0.1, ok=False)]
    assert not unjudged(wide, 0.030, WITHIN)[0].loaded, "30 ms are no reason for that"
    found = Verification("x", 1.0, WITHIN, late)
    assert (found.ok, len(found.outside), len(found.unjudged)) == (False, 0, 3)
    told = describe(found)
    assert "3 of 4 could not be judged (?), because the machine was too loaded" in told
    assert "outside" not in told


def test_a_gateway_tells_how_late_it_was() -> None:
    before, after = {"wakes": 10, "late_s": 1.0}, {"wakes": 110, "late_s": 3.0}
    assert gateway_lateness_s(before, after) == pytest.approx(0.02)
    assert gateway_lateness_s(after, after) == 0.0
