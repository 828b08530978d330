"""What faults that overlap make of a link, against arithmetic."""

import math
from pathlib import Path

import pytest

from muster.common.rates.recording import DIRECTIONS
from muster.emulator.faults.link_changes import LinkChange, shape_of, state_of
from muster.emulator.faults.link_measures import LinkMeter
from muster.emulator.gateway.faults import Fault
from muster.emulator.gateway.rates import rate_of
from muster.emulator.links.shape import Shape

NOMINAL = Shape(up_bps=1e6, down_bps=4e6, rtt_s=0.1, jitter_s=0.03, loss=0.1, fading=0.5)


def limit(nbytes: int) -> LinkChange:
    return LinkChange(faults=(Fault(fault="limit", direction="up", bytes=nbytes),))


def flap(down_s: float, up_s: float) -> LinkChange:
    return LinkChange(faults=(Fault(fault="flap", down_s=down_s, up_s=up_s),))


def test_rates_multiply_delays_add_variances_add_and_losses_are_independent() -> None:
    first = LinkChange(rate_factor=0.5, rtt_s=0.2, jitter_s=0.04, loss=0.2)
    second = LinkChange(rate_factor=0.1, rtt_s=0.05, jitter_s=0.12, loss=0.05)
    found = shape_of(NOMINAL, [first, second])
    assert found.up_bps == pytest.approx(5e4)
    assert found.down_bps == pytest.approx(2e5)
    assert found.rtt_s == pytest.approx(0.35)
    assert found.jitter_s == pytest.approx(0.13)  # 9 + 16 + 144 = 169
    assert found.loss == pytest.approx(1 - 0.9 * 0.8 * 0.95)
    assert found.fading == 0.5
    assert shape_of(NOMINAL, [second, first]) == pytest.approx(found)
    assert shape_of(NOMINAL, []) == NOMINAL


def test_a_link_without_rates_and_without_loss_stays_exactly_so() -> None:
    found = shape_of(Shape(), [LinkChange(rtt_s=0.3), LinkChange(rate_factor=0.5)])
    assert found == Shape(rtt_s=0.3)


def test_no_more_than_half_of_the_packets_is_lost() -> None:
    assert shape_of(Shape(), [LinkChange(loss=0.4), LinkChange(loss=0.4)]).loss == 0.5


@pytest.mark.parametrize("order", [1, -1])
def test_of_limits_the_smallest_counts_and_of_flaps_the_longest_down(order: int) -> None:
    changes = [limit(500), limit(300), flap(1.0, 4.0), flap(1.0, 2.0), flap(5.0, 30.0)][::order]
    faults = state_of(NOMINAL, changes).faults
    assert faults["limit", "up"].bytes == 300
    assert (faults["flap", None].down_s, faults["flap", None].up_s) == (1.0, 2.0)


def stats(
    nbytes: int, struck: int, stalls: int = 0, **delays: float | int | None
) -> dict[str, object]:
    each = {"pieces": 0, "least_s": None, "quartile_s": None, **delays}
    up = {
        "bytes": nbytes,
        "capacity": 1000.0 * nbytes,
        "delays": each,
        "stalls": stalls,
        "packets": nbytes / 1460,
    }
    down = {"bytes": 0, "capacity": None, "delays": each, "stalls": 0, "packets": 0.0}
    return {"up": up, "down": down, "struck": struck}


def test_counts_go_on_if_the_gateway_is_started_again() -> None:
    meter = LinkMeter()
    assert meter.read(1.0, 0.0, stats(100, 3)).struck == 3
    assert meter.read(2.0, 0.0, stats(200, 4)).struck == 4
    again = meter.read(3.0, 2.5, stats(50, 4))  # another process, with 4 of its own
    assert (again.struck, again.struck_lately, again.bytes_lately) == (8, 0, 0)
    later = meter.read(4.0, 2.5, stats(80, 5))
    assert (later.struck, later.struck_lately, later.bytes_lately) == (9, 1, 30)
    meter.begin_again()
    assert meter.read(4.1, 2.5, stats(90, 5)).struck_lately == 0
    assert meter.read(4.2, 2.5, stats(95, 5)).bytes_lately == 5


def test_a_rate_is_measured_over_a_tenth_of_a_second_at_least() -> None:
    meter = LinkMeter()
    assert meter.read(1.0, 0.0, stats(100, 0)).bps == {}
    assert meter.read(1.05, 0.0, stats(200, 0)).bps == {}
    assert meter.read(1.5, 0.0, stats(600, 0)).bps["up"] == pytest.approx(8 * 1000 * 500 / 0.5)


def test_delays_and_stalls_are_read_in_both_directions() -> None:
    meter = LinkMeter()
    meter.read(1.0, 0.0, stats(0, 0))
    seen = meter.read(2.0, 0.0, stats(14_600, 0, 2, pieces=8, least_s=0.05, quartile_s=0.066))
    assert seen.round_trip_s == pytest.approx(0.1)
    assert seen.excess_s == pytest.approx(0.016)
    assert seen.stalls_a_packet == pytest.approx(0.2)
    few = meter.read(3.0, 0.0, stats(14_600, 0, 2, pieces=7, least_s=0.05, quartile_s=0.066))
    assert few.excess_s is None
    assert math.isclose(few.round_trip_s or 0.0, 0.1)


def test_directions_change_apart_and_of_absolute_rates_the_smallest_counts() -> None:
    up = LinkChange(rate_factor=0.5, ways=("up",))
    capped = [LinkChange(most_bps=3e5), LinkChange(most_bps=2e5, ways=("down",))]
    found = shape_of(NOMINAL, [up, *capped])
    assert (found.up_bps, found.down_bps) == (5e5, 4e6)
    assert (found.most_up_bps, found.most_down_bps) == (3e5, 2e5)
    rates = [8 * rate_of(found, way, 7, "a").mean for way in DIRECTIONS]
    assert all(mean < most for mean, most in zip(rates, (3e5, 2e5), strict=True))


def test_recorded_rates_change_too(tmp_path: Path) -> None:
    trace = tmp_path / "bus.log"
    trace.write_text("0 1\n10 4\n30 1\n")
    nominal = Shape(trace_down=str(trace))
    found = shape_of(nominal, [LinkChange(rate_factor=0.25, most_bps=5e5)])
    assert found.trace_up_factor == 1.0
    rate = rate_of(found, "down", 7, "a")
    assert 8 * rate.capacity(0, 5) == pytest.approx(5 * 5e5)  # a quarter of 4 Mbit/s, but capped
    assert 8 * rate.capacity(12, 16) == pytest.approx(4 * 2.5e5)
    assert rate.finish(12, 2.5e5 / 8) == pytest.approx(13)
