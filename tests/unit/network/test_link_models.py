"""The models of lost packets, slow start, queues, handovers and jitter, in invented time."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.common import seeds
from muster.common.fluid import FluidLink
from muster.common.jitter import JitterDistribution, delays
from muster.common.lines import LinkModel
from muster.common.shared_lines import BegunWork, SharedLine
from muster.common.slow_start import slow_start_s
from muster.emulator.gateway.flows import DirectionalLink, Flow
from muster.emulator.gateway.loss import PACKET_BYTES, Loss, Stalls
from muster.emulator.gateway.rates import (
    ConstantRate,
    Fading,
    InterruptedRate,
    Rate,
    Unlimited,
    mean_bps,
    model_of,
    model_of_device,
    rate_of,
)
from muster.emulator.gateway.shaping import Shaper
from muster.emulator.gateway.windows import SlowStart
from muster.emulator.links.settings import LinkSettings
from muster.emulator.links.shape import Shape

MBIT = 1e6 / 8


def due(shaper: Shaper) -> Iterator[tuple[float, Flow, int]]:
    """Yield what is due, with when."""
    while not math.isinf(at := shaper.next()):
        for flow, nbytes in shaper.advance(at)[0]:
            yield at, flow, nbytes


# --- loss ----------------------------------------------------------------------------------------


def test_independent_losses_give_the_paper_s_formula_with_its_last_term() -> None:
    # Padhye et al., equation 30 with b = 1, but their exact f(p)/(1 - p) instead of 1 + 32p².
    p, rtt_s = 0.1, 0.1
    f = 1 + p + 2 * p**2 + 4 * p**3 + 8 * p**4 + 16 * p**5 + 32 * p**6
    a_packet = rtt_s * math.sqrt(2 * p / 3)
    a_packet += 0.2 * min(1.0, 3 * math.sqrt(3 * p / 8)) * p * f / (1 - p)
    loss = Loss(p, rtt_s)
    assert loss.left_of(loss.bound) == pytest.approx(PACKET_BYTES / a_packet, rel=1e-12)


@pytest.mark.parametrize("share", [0.02, 0.4])
def test_stalls_last_as_long_as_the_mean_says(share: float) -> None:
    loss = Loss(share, 0.05)
    drawn = [Stalls(loss, 5, "loss", n).begun(1, last=True) for n in range(5_000)]
    lost = [each for each in drawn if each.stalls]
    assert len(lost) == pytest.approx(5_000 * share, rel=0.3)
    assert min(each.seconds for each in lost) == pytest.approx(0.2)
    assert np.mean([each.seconds for each in lost]) == pytest.approx(loss.mean_stall_s, rel=0.3)
    assert sum(each.seconds > loss.long_stall_s for each in lost) <= 5


def test_losses_in_a_row_are_fewer_events_but_more_of_them_end_in_time_outs() -> None:
    alone, burst = Loss(0.02, 0.05), Loss(0.02, 0.05, run=4)
    # A fourth as many events: the square root of it more rate, as long as nothing stalls.
    assert burst.bound == pytest.approx(alone.bound * math.sqrt(4 * 0.98), rel=1e-9)
    long = Loss(0.02, 0.05, run=50)
    events = 0.02 / (50 * 0.98)
    assert long.stall_ratio > 4 * events * 3 * math.sqrt(3 * events / 8), "whole windows are lost"
    assert burst.share == alone.share, "a message of one packet is lost as often"


@given(st.floats(1e-4, 0.5), st.floats(0.0, 2.0), st.floats(1, 100))
def test_what_loss_does_stays_within_reason(share: float, rtt_s: float, run: float) -> None:
    loss = Loss(share, rtt_s, run)
    assert 0 < loss.stall_ratio <= 1
    assert loss.bound > 0
    assert loss.stall_s <= loss.mean_stall_s <= 8.01 * loss.stall_s
    assert loss.bound >= Loss(share, rtt_s).bound * (1 - 1e-9)


def test_loss_bounds_each_connection_and_not_the_device() -> None:
    loss = Loss(0.01, 0.1)
    moved: dict[int, int] = {}
    for connections in (1, 3):
        shaper = Shaper(Unlimited(), seed=3)
        lane = shaper.lane("a", DirectionalLink(ConstantRate(100 * MBIT), 0.05, loss=loss))
        flows = [shaper.flow(lane, "up", number) for number in range(connections)]
        for flow in flows:
            shaper.arrive(flow, 10_000_000, 0.0)
        moved[connections] = sum(n for at, _, n in due_until(shaper, 30.0))
    expected = 30 * loss.left_of(loss.bound)
    assert moved[1] == pytest.approx(expected, rel=0.15)
    assert moved[3] == pytest.approx(3 * expected, rel=0.15)


def due_until(shaper: Shaper, until: float) -> Iterator[tuple[float, Flow, int]]:
    for each in due(shaper):
        if each[0] > until:
            return
        yield each


# --- slow start ----------------------------------------------------------------------------------


def transfer_s(nbytes: int, bps: float | None, rtt_s: float, window: float) -> float:
    """When the last byte of a transfer is due, if it passes a gateway."""
    rate: Rate = Unlimited() if bps is None else ConstantRate(bps / 8)
    shaper = Shaper(Unlimited(), seed=1)
    link = DirectionalLink(rate, rtt_s / 2, slow_start=SlowStart(window, rtt_s))
    flow = shaper.flow(shaper.lane("a", link), "up", 1)
    shaper.arrive(flow, nbytes, 0.0)
    return [at for at, _, _ in due(shaper)][-1]


def test_a_window_doubles_in_each_round_trip() -> None:
    # 10 packets at once, 20 after a round trip, 40 after the next: without a limit of the rate.
    for packets, rounds in ((10, 0), (11, 1), (30, 1), (31, 2), (70, 2), (71, 3)):
        nbytes = packets * PACKET_BYTES
        found = transfer_s(nbytes, None, 0.2, 10 * PACKET_BYTES)
        assert found == pytest.approx(0.1 + 0.2 * rounds, abs=1e-6), packets
        assert slow_start_s(nbytes, None, 0.2, 10 * PACKET_BYTES) == pytest.approx(0.2 * rounds)


@settings(max_examples=25)
@given(
    st.integers(2_000, 400_000),
    st.floats(2e5, 2e8),
    st.floats(0.005, 0.6),
    st.sampled_from([2, 10, 40]),
)
def test_the_model_waits_as_long_as_the_gateway(
    nbytes: int, bps: float, rtt_s: float, packets: int
) -> None:
    window = packets * PACKET_BYTES
    model = slow_start_s(nbytes, bps, rtt_s, window) + 8 * nbytes / bps
    real = transfer_s(nbytes, bps, rtt_s, window) - rtt_s / 2
    # Only whole packets, and pieces of a sixteenth of the window, are acknowledged.
    rounds = math.log2(nbytes / window + 1) + 1
    piece_s = 8 * PACKET_BYTES / bps
    assert real >= model - 1e-6
    assert real <= model + 0.15 * rtt_s + rounds * piece_s


def test_after_a_pause_a_connection_begins_anew() -> None:
    shaper = Shaper(Unlimited(), seed=1)
    link = DirectionalLink(Unlimited(), 0.1, slow_start=SlowStart(10 * PACKET_BYTES, 0.2))
    flow = shaper.flow(shaper.lane("a", link), "up", 1)
    times = []
    for began in (0.0, 0.7, 10.0):
        shaper.arrive(flow, 60 * PACKET_BYTES, began)
        times.append([at for at, _, _ in due(shaper)][-1] - began)
    # The window is still large after a short pause.
    assert times == pytest.approx([0.5, 0.1, 0.5])


def test_modelled_transfers_wait_for_slow_start_alone_and_on_shared_links() -> None:
    shape = Shape(up_bps=8e6, down_bps=16e6, rtt_s=0.3, initial_window=10)
    line, plain = model_of(shape), model_of(shape.model_copy(update={"initial_window": None}))
    later = line.transfer_s(1e6, 5e5) - plain.transfer_s(1e6, 5e5)
    window = 10 * PACKET_BYTES
    assert later == pytest.approx(
        slow_start_s(1e6, 16e6, 0.3, window) + slow_start_s(5e5, 8e6, 0.3, window)
    )
    assert later > 1.0
    # A device that is alone on a shared link takes as long as on its own.
    work_s = 7.0 + line.transfer_s(1e6, 5e5)
    link = FluidLink(SharedLine(up_bps=1e9, down_bps=1e9), {"a": line}, {"a": (1e6, 5e5)})
    link.begin("a", 1, BegunWork(0.0, work_s))
    link.play(math.inf)
    assert link.work()["a"].at_s == pytest.approx(work_s, abs=1e-6)
    assert line.training_s(work_s, 1e6, 5e5) == pytest.approx(7.0)


def test_a_slower_shared_link_needs_no_larger_window() -> None:
    line = LinkModel(rtt_s=0.1, window_bytes=10 * PACKET_BYTES)
    link = FluidLink(SharedLine(down_bps=1e6, up_bps=1e6), {"a": line}, {"a": (1e6, 1e6)})
    link.begin("a", 1, BegunWork(0.0, line.transfer_s(1e6, 1e6)))
    link.play(math.inf)
    assert link.work()["a"].at_s == pytest.approx(16 + 0.2)  # 12.5 kB are less than a window


# --- queues --------------------------------------------------------------------------------------


def full_queue(fifo: bool, queue: float, bps: float = 1e6) -> tuple[float, int]:
    """How long a message waits beside a transfer of another connection, and the bytes queued."""
    shaper = Shaper(Unlimited(), seed=1)
    link = DirectionalLink(ConstantRate(bps / 8), queue_bytes=queue, fifo=fifo)
    lane = shaper.lane("a", link)
    bulk, message = shaper.flow(lane, "up", 1), shaper.flow(lane, "up", 2)
    now, asked, came = 0.0, 0.0, 0.0
    while now < 8.0:
        if (room := shaper.room(bulk, bulk.queued + bulk.flying)) >= lane.refill_bytes:
            shaper.arrive(bulk, room, now)
        if now > 5.0 and not asked:
            asked, queued = now, bulk.queued
            assert shaper.room(message, 0) > 0, "a message finds room in a full queue"
            shaper.arrive(message, 100, now)
        now = shaper.next()
        came = next((now for flow, _ in shaper.advance(now)[0] if flow is message), came)
    return came - asked, queued


def test_a_message_waits_in_a_full_fifo_for_queue_over_rate() -> None:
    waited_s, queued = full_queue(fifo=True, queue=64_000)
    assert queued == pytest.approx(64_000, abs=2_500)
    assert waited_s == pytest.approx(8 * 64_000 / 1e6, rel=0.06)


def test_fair_queues_let_a_message_pass_a_full_one() -> None:
    waited_s, queued = full_queue(fifo=False, queue=64_000)
    assert queued == pytest.approx(64_000, abs=2_500)
    assert waited_s < 0.05


def test_a_queue_holds_two_slices_at_least() -> None:
    waited_s, _ = full_queue(fifo=True, queue=1500)
    assert 0.015 < waited_s < 0.07


@settings(max_examples=25)
@given(st.lists(st.tuples(st.floats(0, 0.2), st.integers(0, 2), st.integers(1, 4000)), max_size=40))
def test_a_fifo_keeps_the_order_of_arrival(steps: list[tuple[float, int, int]]) -> None:
    shaper = Shaper(Unlimited(), seed=1)
    lane = shaper.lane("a", DirectionalLink(ConstantRate(20_000), queue_bytes=1e6, fifo=True))
    flows = [shaper.flow(lane, "up", number) for number in range(3)]
    now, came = 0.0, []
    for wait, which, nbytes in steps:
        now += wait
        came += [flow for flow, n in shaper.advance(now)[0] for _ in range(n)]
        shaper.arrive(flows[which], nbytes, now)
    came += [flow for _, flow, n in due(shaper) for _ in range(n)]
    sent, instants = [], np.cumsum([wait for wait, _, _ in steps])
    for (_, which, nbytes), _at in zip(steps, instants, strict=True):
        sent += [flows[which]] * nbytes
    assert came == sent or len({*instants}) < len(steps)
    assert len(came) == len(sent)


def test_patience_and_windows_cover_what_waits_in_a_queue() -> None:
    line = model_of(Shape(up_bps=1e6, rtt_s=0.1, queue_up_bytes=250_000))
    assert line.queue_s == 2.0
    assert line.under_way_bytes == pytest.approx(262_500)
    assert line.late_s == pytest.approx(2.1)
    assert line.patience_s(0) == pytest.approx(4.4)


# --- handovers -----------------------------------------------------------------------------------


def interrupted(rate: Rate, direction: str = "up") -> InterruptedRate:
    return InterruptedRate(rate, 5.0, 0.5, 9, ("handover", "a"))


def test_nothing_passes_in_a_handover_and_both_directions_have_the_same() -> None:
    rate = interrupted(ConstantRate(1000.0))
    gaps = list(rate.gaps(0.0, 1000.0))
    assert len(gaps) == pytest.approx(1000 / 5.5, rel=0.2)
    assert list(interrupted(Unlimited()).gaps(0.0, 1000.0)) == gaps
    for begins, ends in gaps[:20]:
        assert ends - begins == pytest.approx(0.5)
        assert rate.capacity(begins, ends) == pytest.approx(0, abs=1e-6)
        assert rate.finish(begins + 0.1, 100) == pytest.approx(ends + 0.1)
        assert interrupted(Unlimited()).finish(begins + 0.1, 100) == pytest.approx(ends)
    assert rate.capacity(0.0, 1000.0) == pytest.approx(1000 * (1000 - 0.5 * len(gaps)), rel=0.01)
    assert rate.mean == pytest.approx(1000 * 5 / 5.5)


@settings(max_examples=25)
@given(st.floats(0, 100), st.floats(1, 20_000), st.booleans())
def test_what_leaves_until_it_has_left_is_what_was_sent(
    start: float, nbytes: float, fades: bool
) -> None:
    base = Fading(1000.0, 0.5, 8.0, 0.25, 5, ("fading", "a", "up"))
    rate = interrupted(base if fades else ConstantRate(1000.0))
    end = rate.finish(start, nbytes)
    assert rate.capacity(start, end) == pytest.approx(nbytes, rel=1e-6, abs=1e-3)
    assert not any(begins < end - 1e-9 < ends - 1e-9 for begins, ends in rate.gaps(start, end))


def test_handovers_leave_a_part_of_the_mean_rate() -> None:
    shape = Shape(up_bps=1e6, handover_time_s=9.0, handover_gap_s=1.0)
    assert mean_bps(shape, "up") == pytest.approx(0.9e6)
    line = model_of(shape)
    assert line.up_bps == pytest.approx(0.9e6)
    assert line.gap_s == 1.0
    rate = rate_of(shape, "up", 3, "a")
    assert 8 * rate.capacity(0, 50_000) / 50_000 == pytest.approx(0.9e6, rel=0.03)


# --- delays --------------------------------------------------------------------------------------


@pytest.mark.parametrize("distribution", ["late", "normal", "uniform", "pareto"])
def test_jitter_has_its_mean_and_its_deviation(distribution: JitterDistribution) -> None:
    drawn = delays(distribution, 1.0, 0.05, seeds.stream(1, distribution), 400_000)
    if distribution == "late":
        assert drawn.mean() == pytest.approx(1 + 0.05 / math.sqrt(2 * math.pi), abs=1e-3)
        assert drawn.min() == 1.0
        return
    assert drawn.mean() == pytest.approx(1.0, abs=1e-3)
    assert drawn.std() == pytest.approx(0.05, rel=0.05)
    if distribution == "pareto":
        assert np.median(drawn) < 1.0 < drawn.max() - 0.3, "seldom, but then very late"


def test_no_delay_is_less_than_0() -> None:
    assert delays("normal", 0.01, 1.0, seeds.stream(1, "x"), 1000).min() == 0.0


def shape_of(**link: object) -> Shape:
    [shape] = LinkSettings.model_validate(link).shapes_of(1, ["a-0000"], [0])
    return shape


def test_delays_one_way_take_the_place_of_half_a_round_trip() -> None:
    both = shape_of(delay_down="30 ms", delay_up="90 ms")
    assert (both.delay_s("down"), both.delay_s("up")) == pytest.approx((0.03, 0.09))
    assert both.rtt_s == pytest.approx(0.12)
    one = shape_of(rtt="40 ms", delay_up="90 ms")
    assert (one.delay_s("down"), one.delay_s("up")) == pytest.approx((0.02, 0.09))
    longer = both.model_copy(update={"rtt_s": both.rtt_s + 0.1})  # as the fault `delay` makes it
    assert (longer.delay_s("down"), longer.delay_s("up")) == pytest.approx((0.08, 0.14))


def test_each_setting_is_a_number_or_a_distribution() -> None:
    def drawn(low: float, high: float, unit: str | None = None) -> dict[str, object]:
        found: dict[str, object] = {"kind": "uniform", "low": low, "high": high}
        return found if unit is None else {**found, "unit": unit}

    link = {
        "up": "5 Mbit/s",
        "delay_up": drawn(20, 80, "ms"),
        "loss": 0.02,
        "loss_burst": drawn(2, 6),
        "queue_up": drawn(100, 300, "KiB"),
        "initial_window": drawn(4, 12),
        "handover_time": drawn(20, 40, "s"),
        "handover_gap": drawn(50, 90, "ms"),
    }
    names = [f"a-{number:04d}" for number in range(50)]
    shapes = LinkSettings.model_validate(link).shapes_of(1, names, range(50))
    for field, low, high in (
        ("loss_burst", 2, 6),
        ("queue_up_bytes", 102_400, 307_200),
        ("initial_window", 4, 12),
        ("handover_time_s", 20, 40),
        ("handover_gap_s", 0.05, 0.09),
    ):
        values = [getattr(shape, field) for shape in shapes]
        assert low <= min(values) < max(values) <= high
        assert len({*values}) == 50
    assert all(0.02 <= shape.delay_s("up") <= 0.08 for shape in shapes)
    assert all(shape.delay_s("down") == 0 for shape in shapes)


@pytest.mark.parametrize(
    ("link", "says"),
    [
        ({"handover_time": "20 s"}, "handover_gap: expected both"),
        ({"handover_gap": "20 ms"}, "handover_time: expected both"),
        ({"queue_up": "20 B"}, "queue_up: .*expected at least 1500"),
        ({"queue_up": 20_000}, "queue_up: .*expected a number with a unit"),
        ({"queueing": "codel"}, "queueing: "),
        ({"jitter_distribution": "gamma"}, "jitter_distribution: "),
        ({"initial_window": 0}, "initial_window: .*expected at least 1"),
        ({"loss_burst": 0.5}, "loss_burst: .*expected at least 1"),
        ({"delay_up": "31 s"}, "delay_up: .*expected at most 30"),
    ],
)
def test_what_cannot_be_is_refused(link: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says.split(":")[0]):
        LinkSettings.model_validate(link)


def test_packets_are_lost_in_one_direction_only() -> None:
    """Without loss, a link of 20 Mbit/s and 40 ms carries all of it."""
    shape = Shape(up_bps=20e6, down_bps=20e6, rtt_s=0.04, loss_up=0.03)
    line = model_of(shape)
    assert line.down_bps == 20e6
    assert line.up_bps == model_of(shape.model_copy(update={"loss": 0.03})).up_bps
    both = shape.model_copy(update={"loss": 0.03, "loss_down": 0.0})
    assert model_of(both) == line


def test_the_loss_of_a_direction_takes_the_place_of_that_of_both() -> None:
    link = LinkSettings.model_validate(
        {"loss": 0.01, "loss_down": {"kind": "uniform", "low": 0.1, "high": 0.2}}
    )
    shapes = link.shapes_of(7, ["a", "b"], [0, 1])
    assert [shape.loss_of("up") for shape in shapes] == [0.01, 0.01]
    assert all(0.1 <= shape.loss_of("down") <= 0.2 for shape in shapes)
    assert link.shapes


JITTERS: tuple[JitterDistribution, ...] = ("late", "normal", "uniform", "pareto")


@given(
    st.sampled_from(JITTERS),
    st.floats(0.001, 1.0),
    st.floats(0.0, 2.0),
    st.floats(0.0, 1e6),
    st.floats(0.0, 100.0),
)
@settings(max_examples=60)
def test_jitter_delays_modelled_work_within_its_bounds_and_can_be_taken_away(
    distribution: JitterDistribution, jitter_s: float, rtt_s: float, at_s: float, train_s: float
) -> None:
    shape = Shape(up_bps=1e6, rtt_s=rtt_s, jitter_s=jitter_s, jitter_distribution=distribution)
    line = model_of_device(shape, 7, "a")
    seconds = line.transfer_s(1e3, 1e5, at_s, train_s)
    least_s, most_s = line.bounds_s(1e3, 1e5)
    assert least_s - 1e-9 <= seconds <= most_s + 1e-9
    assert line.training_s(seconds + train_s, 1e3, 1e5, at_s) == pytest.approx(train_s, abs=1e-6)
    assert seconds == model_of_device(shape, 7, "a").transfer_s(1e3, 1e5, at_s, train_s)


def test_jitter_is_drawn_from_seed_device_and_instant() -> None:
    shape = Shape(rtt_s=0.4, jitter_s=0.05, jitter_distribution="normal")
    line = model_of_device(shape, 7, "a")
    drawn = [line.jitter_s(float(second)) for second in range(400)]
    assert abs(np.mean(drawn)) < 3 * 0.1 / 20
    assert np.std(drawn) == pytest.approx(2 * 0.05, rel=0.15)  # of four messages
    others = model_of_device(shape, 8, "a"), model_of_device(shape, 7, "b")
    assert len({drawn[3], *(other.jitter_s(3.0) for other in others)}) == 3
    assert model_of(shape).transfer_s(0, 0) == 0.8
