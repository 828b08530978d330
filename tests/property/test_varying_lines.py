"""Modelled transfers over recorded rates, against the same transfers in tiny steps."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.client.life.effort import effort_of
from muster.common.fluid import FluidLink, Stage
from muster.common.lines import LineTrace, LinkModel
from muster.common.rates.over_time import RateOverTime
from muster.common.shared_lines import BegunWork, SharedLine, extra_seconds

BYTES_DOWN, BYTES_UP = 100_000.0, 50_000.0
TRAFFIC = BYTES_DOWN, BYTES_UP

pieces = st.lists(
    st.tuples(st.floats(0.05, 5.0), st.one_of(st.just(0.0), st.floats(1e4, 1e7))),
    max_size=8,
).map(lambda drawn: [*drawn, (0.5, 1e5)])  # so that something passes


def rate_of(drawn: list[tuple[float, float]]) -> RateOverTime:
    seconds, bps = np.array(drawn).T
    return RateOverTime.of_pieces(seconds, bps)


@given(pieces, st.floats(0, 50), st.floats(1, 1e7))
def test_bits_pass_as_in_the_pieces(
    drawn: list[tuple[float, float]], start_s: float, bits: float
) -> None:
    rate = rate_of(drawn)
    end_s = rate.finish(start_s, bits)
    assert rate.total(end_s) - rate.total(start_s) == pytest.approx(bits, rel=1e-6, abs=1)
    now_s, left = start_s, bits
    while left > 1e-3:
        bps, until_s = rate.piece(now_s)
        passed_s = min(until_s - now_s, left / bps if bps else math.inf)
        left, now_s = left - bps * passed_s, now_s + passed_s
    assert now_s == pytest.approx(end_s, abs=1e-6 * (1 + end_s))


@given(pieces, st.floats(0, 50), st.floats(1, 1e7))
def test_the_latest_begin_is_as_late_as_possible(
    drawn: list[tuple[float, float]], start_s: float, bits: float
) -> None:
    rate = rate_of(drawn)
    end_s = rate.finish(start_s, bits)
    latest_s = rate.latest(end_s, bits)
    assert latest_s >= start_s - 1e-6
    assert rate.finish(latest_s, bits) == pytest.approx(end_s, abs=1e-6 * (1 + end_s))


@given(pieces, st.floats(0, 50), st.floats(1, 1e6))
def test_no_begin_is_faster_or_slower_than_the_bounds(
    drawn: list[tuple[float, float]], start_s: float, bits: float
) -> None:
    rate = rate_of(drawn)
    least_s, most_s = rate.span_s(bits)
    took_s = rate.finish(start_s, bits) - start_s
    assert least_s - 1e-6 <= took_s <= most_s + 1e-6


@given(pieces, st.floats(0.01, 2.0), st.floats(0, 40))
def test_a_coarse_rate_has_the_same_bits_at_its_steps(
    drawn: list[tuple[float, float]], step_s: float, at_s: float
) -> None:
    rate = rate_of(drawn)
    coarse = rate.coarse(step_s)
    instant = min(math.floor(at_s / step_s) * step_s, rate.period_s)
    assert coarse.total(instant) == pytest.approx(rate.total(instant), rel=1e-9, abs=1e-3)
    assert coarse.mean_bps == pytest.approx(rate.mean_bps)


@pytest.fixture
def drive(tmp_path: Path) -> LineTrace:
    """8 Mbit/s for 10 s, nothing for 10 s, 0.4 Mbit/s for 10 s."""
    file = tmp_path / "drive.csv"
    file.write_text("seconds,down Mbit/s\n0,8\n10,0\n20,0.4\n30,8\n")
    return LineTrace(file=str(file), direction="down")


def test_a_transfer_follows_the_trace_and_not_its_mean(drive: LineTrace) -> None:
    line = LinkModel(down_bps=1.0, down_traces=(drive,), rtt_s=0.2)
    assert line.down_s(BYTES_DOWN, 3.0) == pytest.approx(0.1)
    assert line.down_s(BYTES_DOWN, 12.0) == pytest.approx(8 + 2)
    assert line.down_s(BYTES_DOWN, 9.95) == pytest.approx(0.05 + 10 + 1)
    later = line.model_copy(update={"down_traces": (drive.model_copy(update={"start_s": 9.0}),)})
    assert later.down_s(BYTES_DOWN, 3.0) == pytest.approx(8 + 2)
    assert line.bounds_s(BYTES_DOWN, 0) == pytest.approx((0.4 + 0.1, 0.4 + 12))
    effort = effort_of(np.array([5.0]), [line], *TRAFFIC)
    assert effort.transfer_s == pytest.approx([0.4 + 0.1])
    assert effort.at(12.0).transfer_s == pytest.approx([0.4 + 9.9 - 0.1 + 0.1])
    assert effort.at(12.0).down_s == pytest.approx([9.9])
    assert effort.longest_s == pytest.approx(5 + 0.4 + 12)


def test_the_update_passes_when_the_training_is_done(drive: LineTrace) -> None:
    line = LinkModel(up_bps=1.0, up_traces=(drive,), rtt_s=0.2)
    work_s = 11.0 + line.transfer_s(*TRAFFIC, 5.0, 11.0)
    assert work_s == pytest.approx(11 + 0.4 + (20 - 16.2) + 1)
    assert line.training_s(work_s, *TRAFFIC, 5.0) >= 11.0  # it may have waited for the trace
    again = line.training_s(work_s, *TRAFFIC, 5.0)
    assert again + line.transfer_s(*TRAFFIC, 5.0, again) == pytest.approx(work_s)


@pytest.mark.parametrize("own", [None, 2e6])
def test_alone_on_a_shared_link_that_varies_work_follows_it(
    drive: LineTrace, own: float | None
) -> None:
    shared = SharedLine(down_bps=3e6, down_traces=(drive,))
    line = LinkModel(down_bps=own)
    link = FluidLink(shared, {"a": line}, dict.fromkeys({"a": line}, (BYTES_DOWN, 0)))
    for at_s, took_s in ((3.0, 0.8 / (own or 8e6) * 1e6), (12.0, 8 + 2)):
        link.play(at_s)
        link.begin("a", int(at_s), BegunWork(at_s, line.transfer_s(BYTES_DOWN, 0)))
        link.play(30.0 * at_s)
        assert link.work()["a"].stage is Stage.ENDED
        assert link.work()["a"].at_s - at_s == pytest.approx(took_s)
        link = FluidLink(shared, {"a": line}, dict.fromkeys({"a": line}, (BYTES_DOWN, 0)))


def test_looking_and_resuming_change_nothing_of_a_varying_link(drive: LineTrace) -> None:
    lines = {
        "a": LinkModel(down_bps=1.0, down_traces=(drive,)),
        "b": LinkModel(down_bps=5e6),
    }
    shared = SharedLine(down_bps=6e6)

    def begun() -> FluidLink:
        link = FluidLink(shared, lines, dict.fromkeys(lines, (10 * BYTES_DOWN, BYTES_UP)))
        link.play(8.5)
        for client in lines:
            link.begin(client, 1, BegunWork(8.5, 30.0))
        return link

    whole = begun()
    whole.play(200.0)
    looked = begun()
    for at_s in np.arange(8.5, 200, 0.7):
        looked.play(float(at_s))
        looked.predicted({})
        again = FluidLink(shared, lines, dict.fromkeys(lines, (10 * BYTES_DOWN, BYTES_UP)))
        again.restore(looked.work(), looked.now_s)
        looked = again
    looked.play(200.0)
    assert looked.work() == whole.work()


def test_devices_that_share_a_varying_link_get_their_part_of_it(drive: LineTrace) -> None:
    shared = SharedLine(down_bps=3e6, down_traces=(drive,))
    lines = {client: LinkModel() for client in "abcd"}
    work = dict.fromkeys(lines, BegunWork(3.0, 0.0))
    extra = extra_seconds(shared, 7, "g", 1, lines, dict.fromkeys(lines, TRAFFIC), work)
    assert extra == pytest.approx(dict.fromkeys(lines, 0.4))
    late = dict.fromkeys(lines, BegunWork(19.0, 0.0))
    extra = extra_seconds(shared, 7, "g", 1, lines, dict.fromkeys(lines, TRAFFIC), late)
    assert extra == pytest.approx(dict.fromkeys(lines, 1 + 8.0))
    own = {client: LinkModel(down_bps=1.0, down_traces=(drive,)) for client in "ab"}
    capped = extra_seconds(
        SharedLine(down_bps=1e6), 7, "g", 1, own, dict.fromkeys(own, TRAFFIC), work
    )
    assert capped == pytest.approx(dict.fromkeys(own, 1.6 - 0.1))
