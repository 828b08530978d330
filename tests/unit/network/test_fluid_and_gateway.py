"""The gateway and the model of shared links agree on how long transfers take."""

import math
from collections.abc import Mapping

import pytest

from muster.common.fluid import FluidLink, fair_rates
from muster.common.lines import LineTrace, LinkModel
from muster.common.rates.cross_traffic import TrafficLoad
from muster.common.shared_lines import BegunWork, Cell, SharedLine
from muster.emulator.gateway.flows import CellLink, DirectionalLink
from muster.emulator.gateway.rates import ConstantRate, Rate, Unlimited, rate_of_limit
from muster.emulator.gateway.shaping import Shaper

NBYTES = 400_000
STARTS_S = {"a": 0.0, "b": 0.7, "c": 0.7, "d": 3.0, "e": 9.0}


Cells = Mapping[str, Cell]
Places = Mapping[str, str | None]
"""The cell of each device."""


def by_the_gateway(
    shared_bps: float | None, own_bps: Mapping[str, float | None], cells: Cells, places: Places
) -> dict[str, float]:
    """When the last byte of each transfer is due, if it passes a gateway."""
    return through(SharedLine(down_bps=shared_bps, cells=dict(cells)), own_bps, places)


def through(
    line: SharedLine, own_bps: Mapping[str, float | None], places: Places
) -> dict[str, float]:
    """`by_the_gateway`, over any shared link."""
    limits = line.cell_limits("down")
    links = {name: CellLink(rate_of_limit(limit)) for name, limit in limits.items()}
    shared, queue = rate_of_limit(line.limit("down")), line.queue_bytes("down")
    shaper, ends = Shaper(shared, 1, links, queue), dict[str, float]()
    flows = {
        name: shaper.flow(
            shaper.lane(name, DirectionalLink(rate(bps)), line.path(places.get(name))), "down", 1
        )
        for name, bps in own_bps.items()
    }
    waiting = sorted(STARTS_S, key=STARTS_S.__getitem__)
    while waiting or not math.isinf(shaper.next()):
        now = shaper.next()
        if waiting and STARTS_S[waiting[0]] <= now:
            name = waiting.pop(0)
            shaper.arrive(flows[name], NBYTES, STARTS_S[name])
            continue
        due, _ = shaper.advance(now)
        ends |= {flow.lane.client: now for flow, _ in due}
    return ends


def rate(bps: float | None) -> Rate:
    return Unlimited() if bps is None else ConstantRate(bps / 8)


def by_the_model(
    shared_bps: float | None, own_bps: Mapping[str, float | None], cells: Cells, places: Places
) -> dict[str, float]:
    """When the same transfers end as fluid flows."""
    lines = {n: LinkModel(down_bps=bps, cell=places.get(n)) for n, bps in own_bps.items()}
    return as_fluid(SharedLine(down_bps=shared_bps, cells=dict(cells)), lines)


def as_fluid(shared: SharedLine, lines: Mapping[str, LinkModel]) -> dict[str, float]:
    link = FluidLink(shared, lines, dict.fromkeys(lines, (NBYTES, 0)))
    for name in sorted(STARTS_S, key=STARTS_S.__getitem__):
        link.play(STARTS_S[name])
        link.begin(name, 1, BegunWork(STARTS_S[name], 0.0))
    link.play(math.inf)
    return {name: work.at_s for name, work in link.work().items()}


@pytest.mark.parametrize(
    "own_bps",
    [
        dict.fromkeys("abcde"),
        {"a": 2e6, "b": 3e5, "c": 8e5, "d": None, "e": 1e6},
        dict.fromkeys("abcde", 1e5),
    ],
    ids=["equal", "unequal", "never-full"],
)
def test_transfers_that_overlap_take_as_long_in_both(own_bps: Mapping[str, float | None]) -> None:
    real, model = by_the_gateway(1e6, own_bps, {}, {}), by_the_model(1e6, own_bps, {}, {})
    assert max(model.values()) > 10
    for name, end_s in model.items():
        # A gateway sends slices of at most 0.25 s / 5, and the first bytes of a flow go first.
        assert real[name] == pytest.approx(end_s, abs=0.2), name


NO_LIMITS: dict[str, float | None] = dict.fromkeys("abcde")
UNEQUAL = {"a": 2e6, "b": 3e5, "c": 8e5, "d": None, "e": 1e6}
NESTED = {
    "region": Cell(down_bps=9e5),
    "north": Cell(down_bps=4e5, within="region"),
    "south": Cell(down_bps=7e5, within="region"),
}


@pytest.mark.parametrize(
    ("shared_bps", "own_bps", "cells", "places"),
    [
        (1e6, NO_LIMITS, {"x": Cell(down_bps=3e5)}, {"a": "x", "b": "x", "d": "x"}),
        (None, NO_LIMITS, {"x": Cell(down_bps=8e5)}, dict.fromkeys("abcde", "x")),
        (None, UNEQUAL, {"x": Cell(down_bps=1e6)}, dict.fromkeys("abcde", "x")),
        (
            1e6,
            UNEQUAL,
            {"x": Cell(down_bps=6e5), "y": Cell(down_bps=2e6)},
            {"a": "x", "b": "x", "c": "x", "d": "y", "e": "y"},
        ),
        (1.5e6, NO_LIMITS, NESTED, {"a": "north", "b": "north", "c": "south", "d": "south"}),
    ],
    ids=["one-cell", "all-in-one", "unequal", "two-cells", "tree"],
)
def test_transfers_through_cells_take_as_long_in_both(
    shared_bps: float | None, own_bps: Mapping[str, float | None], cells: Cells, places: Places
) -> None:
    real = by_the_gateway(shared_bps, own_bps, cells, places)
    model = by_the_model(shared_bps, own_bps, cells, places)
    assert max(model.values()) > 10
    for name, end_s in model.items():
        # The links above a cell choose among slices, and so do not see the cell's own order.
        assert real[name] == pytest.approx(end_s, rel=0.04), name


def varying(bps: float, *loads: TrafficLoad) -> LineTrace:
    return LineTrace(direction="down", bps=bps, loads=loads)


BURSTS = TrafficLoad(bps=8e5, on_s=2.0, off_s=3.0, seed=7, name="bursts")
LEFT = varying(1.2e6, BURSTS)


@pytest.mark.parametrize(
    "shared",
    [
        SharedLine(down_bps=LEFT.whole().mean_bps, down_traces=(LEFT,)),
        SharedLine(down_bps=5e5, down_traces=(varying(1e6, TrafficLoad(bps=5e5)),)),
        SharedLine(cells={"x": Cell(down_bps=LEFT.whole().mean_bps, down_traces=(LEFT,))}),
    ],
    ids=["bursts", "constant", "in-a-cell"],
)
def test_cross_traffic_makes_transfers_as_long_in_both(shared: SharedLine) -> None:
    places = dict.fromkeys("abcde", "x" if shared.cells else None)
    lines = {name: LinkModel(down_bps=bps, cell=places[name]) for name, bps in UNEQUAL.items()}
    real, model = through(shared, UNEQUAL, places), as_fluid(shared, lines)
    assert max(model.values()) > 10
    for name, end_s in model.items():
        assert real[name] == pytest.approx(end_s, abs=0.4), name


def test_in_one_queue_a_message_waits_behind_what_others_sent_before_it() -> None:
    shared = SharedLine(down_bps=8e5, queue_down_bytes=50_000)
    waited = {}
    for queue in (shared.queue_bytes("down"), None):
        shaper = Shaper(rate_of_limit(shared.limit("down")), 1, {}, queue)
        lanes = {name: shaper.lane(name, DirectionalLink()) for name in "ab"}
        flows = {name: shaper.flow(lane, "down", 1) for name, lane in lanes.items()}
        shaper.arrive(flows["a"], 50_000, 0.0)
        shaper.advance(0.1)
        shaper.arrive(flows["b"], 200, 0.1)
        while True:
            due, _ = shaper.advance(now := shaper.next())
            if any(flow is flows["b"] for flow, _ in due):
                break
        waited[queue] = now - 0.1
    assert waited[50_000] == pytest.approx(0.4, abs=0.03)
    assert waited[None] < 0.05


def test_transfers_have_max_min_fair_rates_also_in_one_queue() -> None:
    own = {"a": None, "b": 5e4, "c": None, "d": 8e6}
    shaper, got = Shaper(ConstantRate(1e5), 1, {}, 50_000), dict.fromkeys(own, 0)
    lanes = {name: shaper.lane(name, DirectionalLink(rate(bps))) for name, bps in own.items()}
    flows = {name: shaper.flow(lane, "down", 1) for name, lane in lanes.items()}
    now = 0.0
    while now < 60:
        for flow in flows.values():  # a sender that never stops
            if (room := shaper.room(flow, flow.queued + flow.flying)) > 0:
                shaper.arrive(flow, room, now)
        now = shaper.next()
        for flow, nbytes in shaper.advance(now)[0]:
            got[flow.lane.client] += nbytes
    model = fair_rates([math.inf if bps is None else bps for bps in own.values()], 8e5)
    for (name, nbytes), bps in zip(got.items(), model, strict=True):
        assert 8 * nbytes / 60 == pytest.approx(bps, rel=0.15), name
