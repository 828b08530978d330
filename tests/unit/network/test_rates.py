"""Rates that vary, as bytes over time."""

import math
import os
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.common.rates.formats.mahimahi import rate_of as mahimahi_rate
from muster.common.rates.formats.mahimahi import totals_of
from muster.common.rates.over_time import RateOverTime
from muster.common.rates.reading import read_rate
from muster.emulator.gateway.loss import Loss, Stalls
from muster.emulator.gateway.rates import (
    Capped,
    ConstantRate,
    Fading,
    Rate,
    TraceRate,
    Unlimited,
    mean_bps,
    rate_of,
)
from muster.emulator.links.settings import LinkSettings
from muster.emulator.links.shape import Shape


def mahimahi(lines: Sequence[int]) -> RateOverTime:
    """A recording in Mahimahi's format."""
    return mahimahi_rate(*totals_of(np.array(lines)))


def fading(sigma: float = 0.5, bound: float = math.inf, seed: int = 7) -> Fading:
    return Fading(1000.0, sigma, 8.0, 0.25, seed, ("fading", "a", "up"), bound)


RATES: dict[str, Callable[[], Rate]] = {
    "constant": lambda: ConstantRate(1000.0),
    "fading": fading,
    "bounded": lambda: fading(bound=900.0),
    "trace": lambda: TraceRate(mahimahi([1, 1, 3, 250, 1000])),
}


@pytest.mark.parametrize("name", RATES)
@given(start=st.floats(0, 500), nbytes=st.floats(1, 50_000))
def test_what_has_left_by_its_finish_is_what_could_leave_until_then(
    name: str, start: float, nbytes: float
) -> None:
    rate = RATES[name]()
    end = rate.finish(start, nbytes)
    assert end >= start
    assert rate.capacity(start, end) == pytest.approx(nbytes, rel=1e-6, abs=1e-3)


@pytest.mark.parametrize("name", RATES)
@given(start=st.floats(0, 100), pieces=st.lists(st.integers(1, 5000), min_size=1, max_size=20))
def test_pieces_leave_when_the_whole_would(name: str, start: float, pieces: list[int]) -> None:
    rate = RATES[name]()
    at = start
    for piece in pieces:
        at = rate.finish(at, piece)
    assert at == pytest.approx(rate.finish(start, sum(pieces)), abs=1e-6)


def test_no_limit_takes_no_time() -> None:
    assert Unlimited().finish(3.0, 1e12) == 3.0
    assert math.isinf(Unlimited().capacity(0.0, 1.0))


def test_fading_is_the_same_however_it_is_asked() -> None:
    instants = [900.0, 3.0, 40_000.0, 65.0, 0.0, 899.9]
    forward = fading()
    by_instant = {at: forward.finish(at, 500.0) for at in sorted(instants)}
    scattered = fading()
    assert {at: scattered.finish(at, 500.0) for at in instants} == by_instant
    assert scattered.capacity(3.0, 900.0) == forward.capacity(3.0, 900.0)


def test_fading_differs_between_seeds() -> None:
    assert fading(seed=1).finish(0.0, 5000) != fading(seed=2).finish(0.0, 5000)


def test_fading_varies_as_asked() -> None:
    rate, step = fading(0.5), 0.25
    steps = np.array([rate.capacity(i * step, (i + 1) * step) / step for i in range(80_000)])
    assert steps.mean() == pytest.approx(1000, rel=0.03)
    x = np.log(steps)
    assert x.std() == pytest.approx(0.5, rel=0.04)
    for seconds in (0.25, 4.0, 8.0, 16.0):
        lag = round(seconds / step)
        found = np.corrcoef(x[:-lag], x[lag:])[0, 1]
        assert found == pytest.approx(math.exp(-seconds / 8.0), abs=0.05)


def test_a_bound_cuts_fading_and_its_mean() -> None:
    rate = fading(0.8, bound=1100.0)
    found = rate.capacity(0.0, 40_000.0) / 40_000
    assert found == pytest.approx(rate.mean, rel=0.03)
    assert rate.mean < 1000
    most = max(rate.capacity(i / 4, (i + 1) / 4) * 4 for i in range(1000))
    assert most == pytest.approx(1100.0)


def test_a_trace_passes_1500_bytes_in_each_millisecond_it_names() -> None:
    trace = TraceRate(mahimahi([2, 5, 5, 10]))
    passed = [trace.capacity(0.0, ms / 1000) for ms in range(13)]
    assert passed == pytest.approx(
        [0, 0, 1500, 1500, 1500, 4500, 4500, 4500, 4500, 4500, 6000, 6000, 7500]
    )


def test_a_trace_is_replayed_to_the_millisecond_and_again_from_its_start() -> None:
    trace = TraceRate(mahimahi([2, 5, 5, 10]))
    at, ends = 0.0, []
    for _ in range(8):
        at = trace.finish(at, 1500)
        ends.append(1000 * at)
    assert ends == pytest.approx([2, 4.5, 5, 10, 12, 14.5, 15, 20])
    assert trace.mean == 600_000


def test_a_trace_with_a_gap_waits_for_its_end() -> None:
    trace = TraceRate(mahimahi([1, 60_000]))
    assert trace.finish(0.0, 1500) == pytest.approx(0.001)
    assert trace.finish(0.001, 1) == pytest.approx(60.0, abs=0.001)


def test_a_trace_knows_its_rates_and_its_longest_gap() -> None:
    trace = mahimahi([500, 600, 700, 1800, 4000])
    assert trace.mean_bps == 8 * 5 * 1500 / 4
    assert trace.peak_bps == pytest.approx(8 * 4 * 1500)  # from 4000 ms to 700 ms of the next loop
    assert trace.gap_s == pytest.approx(2.199)  # from 1800 to 3999 ms
    around = mahimahi([2900, 3000])
    assert around.gap_s == 2.899  # from its end to the first opportunity of the repetition
    assert mahimahi([7]).gap_s == 0.006
    assert mahimahi([1, 1, 1]).peak_bps == 8 * 4500 * 1000  # it repeats every millisecond


def test_a_trace_that_begins_elsewhere_is_the_same_trace_shifted() -> None:
    trace = mahimahi([2, 5, 5, 10])
    whole, shifted = TraceRate(trace), TraceRate(trace, 0.004)
    for since, until in ((0.0, 0.001), (0.0025, 0.017), (3.0, 3.0055)):
        assert shifted.capacity(since, until) == pytest.approx(
            whole.capacity(since + 0.004, until + 0.004), abs=1e-6
        )
        assert shifted.finish(since, 2000) == pytest.approx(
            whole.finish(since + 0.004, 2000) - 0.004
        )


def day(tmp_path: Path, name: str = "down", lines: str = "1\n500\n1000\n") -> str:
    path = tmp_path / name
    path.write_text(lines)
    return str(path)


def test_devices_of_a_group_begin_at_instants_of_their_own(tmp_path: Path) -> None:
    long = "".join(f"{ms}\n" for ms in range(1, 3001))
    link = LinkSettings(trace=day(tmp_path), trace_up=day(tmp_path, "up", long))
    shapes = link.shapes_of(7, [f"d-{n}" for n in range(400)], range(400))
    starts = np.array([shape.trace_start_s for shape in shapes])
    assert len(set(starts)) == 400
    assert starts.min() >= 0
    assert starts.max() < 3.0  # the longer trace lasts 3 s
    assert starts.mean() == pytest.approx(1.5, abs=0.15)  # 3.5 standard errors: 3 / √(12·400)
    assert link.shapes_of(7, ["d-0"], [0])[0] == shapes[0]
    assert link.shapes_of(8, ["d-0"], [0])[0] != shapes[0]


def test_devices_of_a_group_do_not_fade_together_unless_they_are_asked_to(tmp_path: Path) -> None:
    trace = day(tmp_path, lines="".join(f"{ms}\n" for ms in range(1, 5001)) + "10000\n")

    def rates(client: str, link: LinkSettings) -> list[float]:
        rate = rate_of(link.shapes_of(7, [client], [0])[0], "down", 7, client)
        return [rate.capacity(at, at + 1.0) for at in range(20)]

    own, common = LinkSettings(trace=trace), LinkSettings(trace=trace, trace_start="common")
    assert (
        rates("a", common)
        == rates("b", common)
        == pytest.approx(([1.5e6] * 5 + [0] * 4 + [1500]) * 2)
    )
    assert rates("a", own) != rates("b", own)


def test_a_thousand_devices_share_one_trace(tmp_path: Path) -> None:
    link = LinkSettings(trace=day(tmp_path), trace_up=day(tmp_path, "up"))
    reads = [read_rate(Path(str(link.trace)), "down") for _ in range(1000)]
    assert len({id(trace) for trace in reads}) == 1
    (tmp_path / "down").write_text("1\n2\n")
    os.utime(tmp_path / "down", ns=(1, 1))
    assert read_rate(tmp_path / "down", "down").period_s == 0.002


def test_a_trace_costs_at_most_32_bytes_for_each_line_and_hardly_any_for_each_device() -> None:
    tracemalloc.start()
    try:
        trace = mahimahi(range(1, 100_001))
        of_trace, _ = tracemalloc.get_traced_memory()
        rates = [TraceRate(trace, n / 1000) for n in range(1000)]
        of_both, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert of_trace < 32 * 100_000
    assert of_both - of_trace < 300 * len(rates)


def test_a_trace_far_away_is_exact() -> None:
    trace = TraceRate(mahimahi([2, 5, 5, 10]))
    assert trace.finish(36_000.0, 6000) == pytest.approx(36_000.010, abs=1e-9)


def test_a_cap_holds_what_is_faster() -> None:
    capped = Capped(TraceRate(mahimahi([10, 10, 10, 10])), 150_000.0)
    assert capped.finish(0.009, 6000) == pytest.approx(0.009 + 0.04)
    assert capped.mean == 150_000.0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "is empty"),
        (b"1\n5\n4\n", "line 3: 4 is less"),
        (b"1\nfast\n", "line 2: expected a whole number of milliseconds, found 'fast'"),
        (b"1\n2.5\n", "line 2"),
        (b"-1\n", "line 1: -1 is less"),
        (b"0\n", "ends at millisecond 0"),
        (b"1\n%d\n" % 10**30, "line 2: 1000000000000000000000000000000 is above"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, text: bytes, says: str) -> None:
    path = tmp_path / "bad.trace"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=says):
        read_rate(path, "down")


def test_a_trace_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        read_rate(tmp_path / "none", "down")
    with pytest.raises(ValueError, match="cannot be read: Is a directory"):
        read_rate(tmp_path, "down")


def test_loss_leaves_what_the_paper_says() -> None:
    # p = 0.01, RTT 100 ms: RTT·√(2p/3) = 8.165 ms a packet; RTO 200 ms · 3·√(3p/8) · p = 0.367 ms.
    loss = Loss(0.01, 0.1)
    assert loss.bound == pytest.approx(1460 / 0.008165, rel=1e-3)
    assert loss.left_of(loss.bound) == pytest.approx(1460 / (0.008165 + 0.000367), rel=1e-3)
    shape = Shape(loss=0.01, rtt_s=0.1)
    assert mean_bps(shape, "up") == pytest.approx(8 * 1460 / (0.008165 + 0.000367), rel=1e-3)


def test_a_slow_link_suffers_from_stalls_only() -> None:
    # 80 kbit/s is far below the bound: 146 ms a packet, and 0.367 ms of stalls.
    assert mean_bps(Shape(up_bps=80_000, loss=0.01, rtt_s=0.1), "up") == pytest.approx(
        80_000 * 146 / 146.367, rel=1e-4
    )


def test_stalls_come_as_often_as_they_should() -> None:
    loss = Loss(0.05, 0.1)
    stalls = Stalls(loss, 7, "loss", "a", "up", 1)
    total = sum(stalls.begun(1000, last=False).stalls for _ in range(200_000))
    packets = 200_000 * 1000 / 1460
    assert total == pytest.approx(packets * loss.stall_ratio, rel=0.05)


@pytest.mark.parametrize("nbytes", [1, 16, 1460])
def test_a_message_of_one_packet_is_lost_like_a_packet(nbytes: int) -> None:
    stalls = Stalls(Loss(0.05, 0.1), 7, "loss", "a", "up", 1)
    lost = sum(stalls.begun(nbytes, last=True).stalls for _ in range(20_000))
    assert lost == pytest.approx(1000, abs=4 * math.sqrt(20_000 * 0.05 * 0.95))


def test_of_a_longer_message_the_last_packet_is_lost_like_a_message() -> None:
    loss = Loss(0.05, 0.1)
    stalls = Stalls(loss, 7, "loss", "a", "up", 1)
    lost = sum(stalls.begun(4 * 1460, last=True).stalls for _ in range(20_000))
    expected = 20_000 * (0.05 + 3 * loss.stall_ratio)
    assert lost == pytest.approx(expected, abs=4 * math.sqrt(expected))


def test_the_mean_of_a_link(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.write_text("1\n2\n3\n4\n")
    assert mean_bps(Shape(), "up") is None
    assert mean_bps(Shape(up_bps=5e6), "down") is None
    assert mean_bps(Shape(up_bps=5e6, fading=0.7), "up") == 5e6
    assert mean_bps(Shape(up_bps=5e6, trace_up=str(trace)), "up") == 12e6


def test_directions_and_clients_fade_apart() -> None:
    shape = Shape(up_bps=8000, down_bps=8000, fading=0.5)
    ends = {
        rate_of(shape, direction, 7, client).finish(0.0, 5000)
        for direction in ("up", "down")
        for client in ("a", "b")
    }
    assert len(ends) == 4
