"""What a group's link does to bytes, in invented time."""

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.common.fluid import tree_rates
from muster.common.shared_lines import Cell, SharedLine
from muster.emulator.gateway.flows import CellLink, DirectionalLink, Flow, Lane
from muster.emulator.gateway.loss import Loss
from muster.emulator.gateway.rates import ConstantRate, Fading, Rate, Unlimited
from muster.emulator.gateway.shaping import Shaper

MBIT = 1_000_000 / 8


def delivered(shaper: Shaper, until: float = math.inf) -> list[tuple[float, Flow, int]]:
    """Let time pass from instant to instant; what was due, with when."""
    found = []
    while (at := shaper.next()) <= until and not math.isinf(at):
        due, _ = shaper.advance(at)
        found += [(at, flow, nbytes) for flow, nbytes in due]
    return found


def one(rate: Rate | None = None, **way: Any) -> tuple[Shaper, Flow]:
    shaper = Shaper(Unlimited(), seed=1)
    lane = shaper.lane("a", DirectionalLink(rate or Unlimited(), **way))
    return shaper, shaper.flow(lane, "up", 1)


class Greedy:
    """Flows that always have something to send, each under its own lane's rate."""

    def __init__(self, shaper: Shaper, lanes: list[Lane], at: float = 0.0) -> None:
        self.shaper = shaper
        self.flows = [shaper.flow(lane, "up", 1) for lane in lanes]
        self.moved: dict[str, int] = defaultdict(int)
        for flow in self.flows:
            self.fill(flow, at)

    def fill(self, flow: Flow, now: float) -> None:
        room = self.shaper.room(flow, flow.queued + flow.flying)
        if room > 0:
            self.shaper.arrive(flow, room, now)

    def run(self, until: float) -> dict[str, int]:
        while (at := self.shaper.next()) <= until:
            due, served = self.shaper.advance(at)
            for flow, nbytes in due:
                self.moved[flow.lane.client] += nbytes
            for flow in dict.fromkeys(served):
                self.fill(flow, at)
        return dict(self.moved)


def jain(shares: list[float]) -> float:
    return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))


def test_the_first_bytes_of_an_idle_link_wait_for_their_own_serialisation() -> None:
    shaper, flow = one(ConstantRate(1000.0))
    shaper.arrive(flow, 100, now=5.0)
    [(at, _, n)] = delivered(shaper)
    assert at == pytest.approx(5.1)
    assert n == 100


def test_a_link_that_was_idle_has_earned_no_burst() -> None:
    shaper, flow = one(ConstantRate(10_000.0))
    shaper.arrive(flow, 10_000, now=0.0)
    assert delivered(shaper)[-1][0] == pytest.approx(1.0)
    shaper.arrive(flow, 10_000, now=100.0)
    assert delivered(shaper)[-1][0] == pytest.approx(101.0)


def test_a_link_is_as_slow_as_the_slower_of_two_rates() -> None:
    shaper = Shaper(ConstantRate(500.0))
    flow = shaper.flow(shaper.lane("a", DirectionalLink(ConstantRate(1000.0))), "up", 1)
    shaper.arrive(flow, 5000, 0.0)
    assert delivered(shaper)[-1][0] == pytest.approx(10.0)


def test_who_looks_late_finds_what_would_have_been() -> None:
    on_time, flow = one(ConstantRate(10_000.0), delay_s=0.1)
    on_time.arrive(flow, 10_000, 0.0)
    exact = delivered(on_time)[-1][0]
    late, flow = one(ConstantRate(10_000.0), delay_s=0.1)
    late.arrive(flow, 10_000, 0.0)
    late.advance(0.7)
    assert delivered(late)[-1][0] == exact


def test_slices_are_small_beside_the_rate() -> None:
    shaper, flow = one(ConstantRate(100_000.0))
    shaper.arrive(flow, 20_000, 0.0)
    assert max(n for _, _, n in delivered(shaper)) == 2000  # 20 ms
    shaper, flow = one(ConstantRate(10_000.0))
    shaper.arrive(flow, 20_000, 0.0)
    assert max(n for _, _, n in delivered(shaper)) == 512


def test_a_delay_is_added_to_serialisation() -> None:
    shaper, flow = one(ConstantRate(1000.0), delay_s=0.3)
    shaper.arrive(flow, 100, 0.0)
    assert delivered(shaper)[0][0] == pytest.approx(0.4)


def test_the_end_of_a_flow_comes_after_its_last_byte() -> None:
    shaper, flow = one(ConstantRate(1000.0), delay_s=0.3)
    shaper.arrive(flow, 1000, 0.0)
    shaper.end(flow, 0.0)
    found = [(at, n) for at, _, n in delivered(shaper)]
    assert found[-1][1] == 0
    assert found[-1][0] == pytest.approx(1.3)
    assert sum(n for _, n in found) == 1000


def test_the_end_of_a_silent_flow_takes_the_delay_too() -> None:
    shaper, flow = one(delay_s=0.3)
    shaper.end(flow, 1.0)
    assert [(at, n) for at, _, n in delivered(shaper)] == [(1.3, 0)]


def test_jitter_never_brings_bytes_out_of_order() -> None:
    shaper, flow = one(ConstantRate(100_000.0), delay_s=0.05, jitter_s=0.1)
    for step in range(200):
        shaper.arrive(flow, 1000 + step, step * 0.01)
    found = delivered(shaper)
    assert sum(n for _, _, n in found) == sum(1000 + step for step in range(200))
    times = [at for at, _, _ in found]
    assert times == sorted(times)


def test_jitter_is_the_same_in_every_run_of_a_seed() -> None:
    def run() -> list[float]:
        shaper, flow = one(delay_s=0.05, jitter_s=0.02)
        for step in range(50):
            shaper.arrive(flow, 100, step * 0.1)
        return [at for at, _, _ in delivered(shaper)]

    assert run() == run()
    assert len(set(run())) > 25


@pytest.mark.parametrize("shared", [1.0, 20.0])
def test_devices_that_want_all_get_the_same(shared: float) -> None:
    shaper = Shaper(ConstantRate(shared * MBIT))
    lanes = [shaper.lane(f"d{i}", DirectionalLink()) for i in range(10)]
    moved = Greedy(shaper, lanes).run(20.0)
    assert jain([float(n) for n in moved.values()]) >= 0.999
    assert sum(moved.values()) == pytest.approx(20 * shared * MBIT, rel=0.01)


@pytest.mark.parametrize("before", [Unlimited(), ConstantRate(37_500.0)])
def test_what_a_device_moved_while_it_was_alone_costs_it_nothing_later(before: Rate) -> None:
    # Where nothing was shared its slices were large: each is 0.4 s of what is shared then.
    shaper = Shaper(before)
    lanes = [shaper.lane(each, DirectionalLink(ConstantRate(750_000.0))) for each in "abcdefgh"]
    alone = Greedy(shaper, lanes[:1])
    alone.run(until=2.0)
    shaper.drop(alone.flows[0])
    shaper.share(ConstantRate(37_500.0), lanes, now=3.0)
    shares = Greedy(shaper, lanes, at=3.0).run(until=6.0)
    assert jain([shares[each] for each in "abcdefgh"]) > 0.995


def test_what_slow_devices_leave_is_divided_among_the_fast() -> None:
    # Of 20 Mbit/s: two have 1 and one has 3 of their own; the two others divide 15.
    own = [1.0, 1.0, 3.0, 50.0, 100.0]
    shaper = Shaper(ConstantRate(20 * MBIT))
    lanes = [
        shaper.lane(f"d{i}", DirectionalLink(ConstantRate(rate * MBIT)))
        for i, rate in enumerate(own)
    ]
    moved = Greedy(shaper, lanes).run(20.0)
    got = [moved[f"d{i}"] / (20 * MBIT) for i in range(5)]
    assert got == pytest.approx([1, 1, 3, 7.5, 7.5], rel=0.02)
    assert jain([g / f for g, f in zip(got, [1, 1, 3, 7.5, 7.5], strict=True)]) >= 0.999


def test_a_device_keeps_its_rate_beside_fast_ones_with_large_slices() -> None:
    shaper = Shaper(ConstantRate(10 * MBIT))
    rates = [ConstantRate(2 / 3 * MBIT)] * 3 + [Unlimited()] * 5
    lanes = [shaper.lane(f"d{n}", DirectionalLink(rate)) for n, rate in enumerate(rates)]
    moved = Greedy(shaper, lanes).run(until=20.0)
    for number, rate in enumerate(rates):
        fair = min(rate.mean, 8 / 5 * MBIT)
        assert moved[f"d{number}"] == pytest.approx(20 * fair, rel=0.02)


TREE = {
    "region": Cell(up_bps=6e6),
    "north": Cell(up_bps=2e6, within="region"),
    "south": Cell(up_bps=5e6, within="region"),
    "city": Cell(up_bps=30e6),
    "open": Cell(),
}


@pytest.mark.parametrize("shared_bps", [10e6, 4e6, math.inf], ids=["10M", "4M", "no-limit"])
@pytest.mark.parametrize(
    "places",
    [
        ["north"] * 3 + ["south"] * 2 + ["city"] * 3,
        ["north"] * 4 + ["open"] * 2 + ["city"],
        ["region", "north", "south", "south", "city", "city"],
    ],
    ids=["tree", "open", "inner"],
)
def test_devices_of_cells_get_their_max_min_fair_rates(
    places: list[str], shared_bps: float
) -> None:
    line = SharedLine(cells=TREE)
    limits = {name: cell.up_bps or math.inf for name, cell in TREE.items()}
    cells = {name: CellLink(_rate(bps)) for name, bps in limits.items()}
    shaper, own = Shaper(_rate(shared_bps), cells=cells), [3e6] * len(places)
    lanes = [
        shaper.lane(f"d{n}", DirectionalLink(_rate(own[n])), line.path(place))
        for n, place in enumerate(places)
    ]
    moved = Greedy(shaper, lanes).run(until=20.0)
    paths = [line.path(place) for place in places]
    for number, bps in enumerate(tree_rates(own, shared_bps, paths, limits)):
        assert 8 * moved[f"d{number}"] / 20 == pytest.approx(bps, rel=0.03)


def _rate(bps: float) -> Rate:
    return Unlimited() if math.isinf(bps) else ConstantRate(bps / 8)


def test_a_device_that_goes_lets_those_that_wait_at_its_cell_begin() -> None:
    cell = CellLink(ConstantRate(MBIT))
    shaper = Shaper(Unlimited(), cells={"x": cell})
    lanes = [shaper.lane(name, DirectionalLink(), ["x"]) for name in "abc"]
    flows = [shaper.flow(lane, "up", 1) for lane in lanes]
    for flow in flows:
        shaper.arrive(flow, 50_000, 0.0)
    shaper.advance(0.05)
    shaper.drop(flows[0])
    shaper.share(Unlimited(), lanes, 0.1, cells=False)
    shaper.share(Unlimited(), lanes, 0.1)
    assert sum(n for _, flow, n in delivered(shaper) if flow is flows[1]) > 40_000
    assert not any(flow.queued for flow in flows)


def test_a_device_does_not_get_more_by_opening_connections() -> None:
    shaper = Shaper(ConstantRate(4 * MBIT))
    many, single = shaper.lane("many", DirectionalLink()), shaper.lane("single", DirectionalLink())
    moved = Greedy(shaper, [many, many, many, single]).run(20.0)
    assert moved["many"] == pytest.approx(moved["single"], rel=0.01)


def test_connections_of_a_device_take_turns() -> None:
    shaper = Shaper(Unlimited())
    lane = shaper.lane("a", DirectionalLink(ConstantRate(1 * MBIT)))
    greedy = Greedy(shaper, [lane, lane, lane])
    by_flow: dict[Flow, int] = defaultdict(int)
    while (at := shaper.next()) <= 10.0:
        due, served = shaper.advance(at)
        for flow, nbytes in due:
            by_flow[flow] += nbytes
        for flow in dict.fromkeys(served):
            greedy.fill(flow, at)
    assert jain([float(n) for n in by_flow.values()]) >= 0.999


def test_a_thousand_devices_share_fairly() -> None:
    shaper = Shaper(ConstantRate(100 * MBIT))
    lanes = [shaper.lane(f"d{i}", DirectionalLink(ConstantRate(5 * MBIT))) for i in range(1000)]
    moved = Greedy(shaper, lanes).run(4.0)
    assert len(moved) == 1000
    assert jain([float(n) for n in moved.values()]) >= 0.95
    assert sum(moved.values()) == pytest.approx(4 * 100 * MBIT, rel=0.02)


def test_each_of_a_thousand_has_its_turn_soon() -> None:
    shaper = Shaper(ConstantRate(40 * MBIT))
    lanes = [shaper.lane(f"d{i}", DirectionalLink(ConstantRate(5 * MBIT))) for i in range(1000)]
    moved = Greedy(shaper, lanes).run(3.0)
    assert jain([float(n) for n in moved.values()]) >= 0.99


@pytest.mark.parametrize("elsewhere", [False, True], ids=["same device", "other device"])
def test_a_heartbeat_beside_uploads_waits_for_one_slice(elsewhere: bool) -> None:
    rate = 1 * MBIT
    shaper = Shaper(ConstantRate(rate))
    bulk, quiet = shaper.lane("bulk", DirectionalLink()), shaper.lane("quiet", DirectionalLink())
    greedy = Greedy(shaper, [bulk, bulk, shaper.lane("other", DirectionalLink())])
    greedy.run(5.0)
    heartbeat = shaper.flow(quiet if elsewhere else bulk, "up", 9)
    waits = []
    for beat in range(20):
        now = 5.0 + beat * 0.5 + 0.0037 * beat
        greedy.run(now)
        shaper.arrive(heartbeat, 100, now)
        while heartbeat.queued or heartbeat.flying:
            at = shaper.next()
            _, served = shaper.advance(at)
            for flow in dict.fromkeys(served):
                if flow is not heartbeat:
                    greedy.fill(flow, at)
        waits.append(at - now)
    assert max(waits) <= 0.02 + 100 / rate + 1e-9


def test_a_heartbeat_pays_for_what_it_sends() -> None:
    shaper, flow = one(ConstantRate(1000.0))
    other = shaper.flow(flow.lane, "up", 2)
    shaper.arrive(flow, 500, 0.0)
    shaper.arrive(other, 500, 0.0)
    assert delivered(shaper)[-1][0] == pytest.approx(1.0)


def test_what_waits_before_a_slow_link_is_bounded() -> None:
    shaper, flow = one(ConstantRate(1 * MBIT), delay_s=0.3)
    assert shaper.room(flow, 0) == 16 * 1024
    shaper.arrive(flow, 16 * 1024, 0.0)
    assert shaper.room(flow, 16 * 1024) == 0


def test_what_is_in_the_delay_line_is_bounded() -> None:
    # A receiver that takes nothing: all that was read stays held.
    shaper, flow = one(ConstantRate(8 * MBIT), delay_s=0.3)
    held, now = 0, 0.0
    while (room := shaper.room(flow, held)) > 0:
        shaper.arrive(flow, room, now)
        held += room
        now += 0.5
        shaper.advance(now)
    assert held == 50_000 + 1.5 * 1_000_000 * 0.3


def test_the_delay_line_holds_what_a_full_link_has_under_way() -> None:
    shaper, flow = one(ConstantRate(8 * MBIT), delay_s=0.3)
    greedy = Greedy(shaper, [flow.lane])
    assert greedy.run(10.0)["a"] == pytest.approx(9.7 * 1_000_000, rel=0.01)


@pytest.mark.parametrize("seed", range(4))
def test_a_fading_link_carries_its_peaks_too(seed: int) -> None:
    rate = Fading(1.6 * MBIT, 0.7, 8.0, 0.25, seed, ("fading", "a", "up"))
    shaper = Shaper(Unlimited(), seed=seed)
    lane = shaper.lane("a", DirectionalLink(rate, 0.3, jitter_s=0.05))
    seconds = 120.0
    moved = Greedy(shaper, [lane]).run(seconds)["a"]
    assert moved == pytest.approx(rate.capacity(0.0, seconds - 0.3), rel=0.01)


@pytest.mark.slow
def test_a_lossy_link_delivers_what_the_formula_says() -> None:
    loss = Loss(0.01, 0.05)
    shaper = Shaper(Unlimited(), seed=3)
    lane = shaper.lane("a", DirectionalLink(ConstantRate(loss.bound), 0.025, loss=loss))
    seconds = 4000.0
    moved = Greedy(shaper, [lane]).run(seconds)["a"]
    assert moved / seconds == pytest.approx(loss.left_of(loss.bound), rel=0.05)


@pytest.mark.parametrize(("share", "rtt_s"), [(0.05, 0.04), (0.2, 0.04), (0.01, 0.3)])
def test_echoes_are_delayed_as_often_as_their_packets_are_lost(share: float, rtt_s: float) -> None:
    loss, echoes, delayed, now = Loss(share, rtt_s), 3000, 0, 0.0
    shaper = Shaper(Unlimited(), seed=1)
    link = DirectionalLink(ConstantRate(loss.bound), delay_s=rtt_s / 2, loss=loss)
    ways = [shaper.flow(shaper.lane("a", link), direction, 1) for direction in ("up", "down")]
    for _ in range(echoes):
        began = now
        for flow in ways:
            shaper.arrive(flow, 16, now)
            ((now, _, nbytes),) = delivered(shaper)
            assert nbytes == 16
        delayed += now - began > rtt_s + 0.15
        now += 1.0  # the next echo is far away, so what is lost must be late itself
    lost = 1 - (1 - share) ** 2
    assert delayed == pytest.approx(echoes * lost, abs=4 * math.sqrt(echoes * lost * (1 - lost)))


def test_a_stall_holds_one_connection_and_not_its_neighbours() -> None:
    loss = Loss(0.5, 0.001)  # every second packet begins a stall of 0.2 s
    shaper = Shaper(Unlimited(), seed=3)
    lane = shaper.lane("a", DirectionalLink(ConstantRate(1 * MBIT), loss=loss))
    stalled, neighbour = shaper.flow(lane, "up", 1), shaper.flow(lane, "up", 2)
    shaper.arrive(stalled, 100_000, 0.0)
    shaper.advance(0.1)
    assert stalled.queued
    assert stalled.usable_at() > 0.2
    shaper.arrive(neighbour, 100, 0.15)
    assert shaper.advance(0.16)[0] == [(neighbour, 100)]


def test_a_dropped_flow_delivers_nothing_more() -> None:
    shaper, flow = one(ConstantRate(1000.0), delay_s=1.0)
    other = shaper.flow(flow.lane, "up", 2)
    shaper.arrive(flow, 5000, 0.0)
    shaper.arrive(other, 500, 0.0)
    shaper.advance(1.0)
    shaper.drop(flow)
    assert {each for _, each, _ in delivered(shaper)} == {other}


def test_a_faster_link_is_used_at_once() -> None:
    shaper, flow = one(ConstantRate(10.0))
    shaper.arrive(flow, 5000, 0.0)
    shaper.advance(1.0)
    shaper.change(flow.lane, DirectionalLink(ConstantRate(1000.0)), 1.0)
    shaper.advance(6.0)
    assert flow.queued == 0


def test_a_shared_rate_that_appears_is_obeyed() -> None:
    shaper, flow = one()
    shaper.share(ConstantRate(1000.0), [flow.lane], 1.0)
    shaper.arrive(flow, 5000, 1.0)
    assert delivered(shaper)[-1][0] == pytest.approx(6.0)


Step = tuple[str, float]
steps = st.lists(
    st.tuples(
        st.sampled_from(["read", "wait", "slow", "fast", "free", "far", "shared", "unshared"]),
        st.floats(0.001, 2.0),
    ),
    max_size=60,
)


@given(steps, st.integers(1, 3))
def test_whatever_happens_all_bytes_come_out_in_order(schedule: list[Step], flows: int) -> None:
    shaper = Shaper(Unlimited(), seed=5)
    lane = shaper.lane("a", DirectionalLink())
    loss = Loss(0.05, 0.01)
    fading = Fading(3000.0, 1.0, 8.0, 0.25, 5, ("fading", "a", "up"))
    changes: dict[str, Callable[[float], None]] = {
        "slow": lambda now: shaper.change(
            lane, DirectionalLink(ConstantRate(2000.0), loss=loss), now
        ),
        "fast": lambda now: shaper.change(lane, DirectionalLink(fading, 0.05, 0.1), now),
        "free": lambda now: shaper.change(lane, DirectionalLink(), now),
        "far": lambda now: shaper.change(lane, DirectionalLink(delay_s=0.7, jitter_s=0.2), now),
        "shared": lambda now: shaper.share(ConstantRate(1500.0), [lane], now),
        "unshared": lambda now: shaper.share(Unlimited(), [lane], now),
    }
    ways = [shaper.flow(lane, "up", number) for number in range(flows)]
    sent: dict[Flow, int] = defaultdict(int)
    got: dict[Flow, int] = defaultdict(int)
    now, reads = 0.0, 0
    for what, value in schedule:
        now += value / 10
        if what == "read":
            flow = ways[reads % flows]
            nbytes = int(value * 3000) + 1
            shaper.arrive(flow, nbytes, now)
            sent[flow] += nbytes
            reads += 1
        elif what != "wait":
            changes[what](now)
        for flow, nbytes in shaper.advance(now)[0]:
            got[flow] += nbytes
            assert got[flow] <= sent[flow]
    for flow in ways:
        shaper.end(flow, now)
    ended = set()
    for _, flow, nbytes in delivered(shaper):
        assert flow not in ended
        got[flow] += nbytes
        if not nbytes:
            ended.add(flow)
    assert all(got[flow] == sent[flow] for flow in ways)
    assert ended == set(ways)
