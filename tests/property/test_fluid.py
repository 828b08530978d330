"""Fluid transfers over a shared link, against a simulation of the same link in tiny steps."""

import math
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.common.fluid import FluidLink, Stage, fair_rates, tree_rates
from muster.common.lines import LinkModel
from muster.common.shared_lines import BegunWork, SharedLine

STEP_S = 0.002
BYTES_DOWN, BYTES_UP = 1000.0, 500.0


class Start(NamedTuple):
    """The beginning of a device's work."""

    client: str
    at_s: float
    train_s: float


limits = st.one_of(st.just(math.inf), st.floats(100.0, 50_000.0))
rates = st.one_of(st.none(), st.floats(4_000.0, 30_000.0))


@given(st.lists(limits, min_size=1, max_size=8), st.floats(500.0, 100_000.0))
def test_rates_are_max_min_fair(flows: list[float], capacity: float) -> None:
    found = fair_rates(flows, capacity)
    assert all(0 < rate <= limit for rate, limit in zip(found, flows, strict=True))
    assert sum(found) <= capacity * (1 + 1e-12)
    below = [rate for rate, limit in zip(found, flows, strict=True) if rate < limit]
    if below:  # they want more: nobody has more than they, and nothing is left
        assert sum(found) == pytest.approx(capacity)
        assert min(below) >= max(found) * (1 - 1e-12)
    assert fair_rates(flows[::-1], capacity) == found[::-1]


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[float], float, list[list[str]], dict[str, float]]:
    """Limits, the capacity of the root, the path of each flow, and the capacity of each link."""
    parents: dict[str, str | None] = {}
    for name in "uvwxyz"[: draw(st.integers(1, 6))]:
        parents[name] = draw(st.sampled_from([None, *parents]))
    wanted = draw(st.lists(limits, min_size=1, max_size=8))
    paths: list[list[str]] = []
    for _ in wanted:
        path, at = [], draw(st.sampled_from([None, *parents]))
        while at is not None:
            path.append(at)
            at = parents[at]
        paths.append(path)
    capacities = {name: draw(limits) for name in parents}
    return wanted, draw(st.floats(500.0, 100_000.0)), paths, capacities


@given(trees())
def test_rates_in_a_tree_are_max_min_fair(
    tree: tuple[list[float], float, list[list[str]], dict[str, float]],
) -> None:
    wanted, capacity, paths, capacities = tree
    found = tree_rates(wanted, capacity, paths, capacities)
    links = {**capacities, "": capacity}
    through = {
        link: [rate for rate, path in zip(found, paths, strict=True) if link in ("", *path)]
        for link in links
    }
    assert all(sum(rates) <= links[link] * (1 + 1e-9) for link, rates in through.items())
    for rate, limit, path in zip(found, wanted, paths, strict=True):
        assert 0 < rate <= limit
        # Who wants more passes a full link on which nobody has more.
        assert rate == limit or any(
            sum(through[link]) >= links[link] * (1 - 1e-9)
            and rate >= max(through[link]) * (1 - 1e-9)
            for link in ("", *path)
        )


def test_rates_without_a_capacity_are_the_limits() -> None:
    assert fair_rates([3.0, math.inf, 1.0], math.inf) == [3.0, math.inf, 1.0]


@st.composite
def fleets(draw: st.DrawFn) -> tuple[SharedLine, dict[str, LinkModel], list[Start]]:
    """A shared link, the devices' own links, and the beginnings of their work in order."""
    clients = [f"d{n}" for n in range(draw(st.integers(1, 5)))]
    shared = SharedLine(down_bps=draw(rates), up_bps=draw(rates))
    lines = {
        client: LinkModel(
            down_bps=draw(rates), up_bps=draw(rates), rtt_s=draw(st.sampled_from([0.0, 0.2]))
        )
        for client in clients
    }
    # Grouped into a few moments, as the rounds of a server are.
    moments = sorted(draw(st.lists(st.floats(0.0, 3.0), min_size=1, max_size=3, unique=True)))
    starts = [
        Start(client, draw(st.sampled_from(moments)), draw(st.floats(0.0, 2.0)))
        for client in clients
    ]
    return shared, lines, sorted(starts, key=lambda start: start.at_s)


def began(link: FluidLink, lines: dict[str, LinkModel], start: Start, round: int = 1) -> None:
    alone_s = lines[start.client].transfer_s(BYTES_DOWN, BYTES_UP)
    link.begin(start.client, round, BegunWork(start.at_s, start.train_s + alone_s))


def ends(link: FluidLink) -> dict[str, float]:
    assert all(work.stage is Stage.ENDED for work in link.work().values())
    return {client: work.at_s for client, work in link.work().items()}


def played(
    shared: SharedLine, lines: dict[str, LinkModel], starts: list[Start], looks: int = 0
) -> dict[str, float]:
    """When each work ends. The link is looked at so many times before every beginning."""
    link = FluidLink(shared, lines, dict.fromkeys(lines, (BYTES_DOWN, BYTES_UP)))
    for start in starts:
        for look in range(looks):
            link.play(link.now_s + (start.at_s - link.now_s) * look / looks)
            link.predicted({})
        link.play(start.at_s)
        began(link, lines, start)
    link.play(math.inf)
    return ends(link)


def stepped(
    shared: SharedLine,
    lines: dict[str, LinkModel],
    starts: list[Start],
    sizes: tuple[float, float] = (BYTES_DOWN, BYTES_UP),
) -> dict[str, float]:
    """When each work ends, in steps of STEP_S. The level of the rates is found by bisection.

    Args:
        sizes: bytes of a model and of an update.
    """
    infinite = 1e12
    capacity = {"down": shared.down_bps or infinite, "up": shared.up_bps or infinite}
    own = {
        client: {"down": line.down_bps or infinite, "up": line.up_bps or infinite}
        for client, line in lines.items()
    }
    plans = {
        start.client: [
            ("wait", start.at_s + lines[start.client].rtt_s / 2),
            ("down", 8 * sizes[0]),
            ("wait", lines[start.client].rtt_s / 2 + start.train_s),
            ("up", 8 * sizes[1]),
            ("wait", lines[start.client].rtt_s),
        ]
        for start in starts
    }
    found: dict[str, float] = {}
    step = 0
    while plans:
        for way, whole in capacity.items():
            flows = [client for client, plan in plans.items() if plan[0][0] == way]
            low, high = 0.0, infinite
            for _ in range(60):
                level = (low + high) / 2
                used = sum(min(own[client][way], level) for client in flows)
                low, high = (level, high) if used <= whole else (low, level)
            for client in flows:
                left = plans[client][0][1] - min(own[client][way], low) * STEP_S
                plans[client][0] = way, left
        for client in list(plans):
            kind, left = plans[client][0]
            if kind == "wait":
                plans[client][0] = kind, (left := left - STEP_S)
            if left <= 0 or (kind == "wait" and left <= STEP_S / 2):
                plans[client].pop(0)
                if not plans[client]:
                    found[client] = (step + 1) * STEP_S
                    del plans[client]
        step += 1
        assert step * STEP_S < 100
    return found


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(fleets())
def test_fluid_flows_end_when_a_simulation_in_tiny_steps_says(
    fleet: tuple[SharedLine, dict[str, LinkModel], list[Start]],
) -> None:
    exact, brute = played(*fleet), stepped(*fleet)
    assert exact.keys() == brute.keys()
    for client, end_s in exact.items():
        assert brute[client] == pytest.approx(end_s, abs=30 * STEP_S)


@given(fleets(), st.integers(1, 4))
def test_looking_changes_no_bit(
    fleet: tuple[SharedLine, dict[str, LinkModel], list[Start]], looks: int
) -> None:
    assert played(*fleet, looks) == played(*fleet)


@given(fleets())
def test_what_ends_before_the_next_beginning_is_predicted_to_the_bit(
    fleet: tuple[SharedLine, dict[str, LinkModel], list[Start]],
) -> None:
    """This is why a server may let an update count before it knows who is called next."""
    shared, lines, starts = fleet
    link, final = (
        FluidLink(shared, lines, dict.fromkeys(lines, (BYTES_DOWN, BYTES_UP))),
        played(*fleet),
    )
    for start, then in zip(starts, [*starts[1:], None], strict=True):
        link.play(start.at_s)
        alone_s = lines[start.client].transfer_s(BYTES_DOWN, BYTES_UP)
        predicted = link.predicted(
            {start.client: (1, BegunWork(start.at_s, start.train_s + alone_s))}
        )
        began(link, lines, start)
        for client, end_s in predicted.items():
            if then is None or end_s <= then.at_s:
                assert end_s == final[client]
            else:
                assert final[client] > then.at_s, "it does not end before the next beginning"


@given(fleets(), st.floats(0.0, 6.0))
def test_a_link_that_is_restored_goes_on_with_the_same_bits(
    fleet: tuple[SharedLine, dict[str, LinkModel], list[Start]], moment: float
) -> None:
    shared, lines, starts = fleet
    link = FluidLink(shared, lines, dict.fromkeys(lines, (BYTES_DOWN, BYTES_UP)))
    for start in starts:
        if start.at_s > moment >= link.now_s:
            link.play(moment)
            link, old = FluidLink(shared, lines, dict.fromkeys(lines, (BYTES_DOWN, BYTES_UP))), link
            link.restore(old.work(), old.now_s)
        link.play(start.at_s)
        began(link, lines, start)
    again = FluidLink(shared, lines, dict.fromkeys(lines, (BYTES_DOWN, BYTES_UP)))
    again.restore(link.work(), link.now_s)
    again.play(math.inf)
    assert ends(again) == played(*fleet)


def test_two_devices_divide_the_rate_while_both_transfer() -> None:
    """a has the link alone for 1 s and takes 4 of its 8 kbit. Then both get half of 4 kbit/s: a
    needs 2 s more, and b has half of its 8 kbit then and gets the rest in 1 s."""
    shared, lines = SharedLine(down_bps=4000.0), {"a": LinkModel(), "b": LinkModel()}
    assert played(shared, lines, [Start("a", 0.0, 0.0), Start("b", 1.0, 0.5)]) == {
        "a": 3.0,
        "b": 4.5,
    }


def test_alone_on_a_link_work_takes_what_its_device_says() -> None:
    lines = {"a": LinkModel(down_bps=8000.0, up_bps=2000.0, rtt_s=0.25)}
    shared = SharedLine(down_bps=9000.0, up_bps=9000.0)
    alone_s = lines["a"].transfer_s(BYTES_DOWN, BYTES_UP)
    assert alone_s == 1 + 2 + 0.5
    assert played(shared, lines, [Start("a", 0.0, 1.5)]) == {"a": 5.0}


def test_work_that_begins_later_can_let_other_work_end_earlier() -> None:
    """So a predicted end is no lower bound. b uploads from 2.5 on, and would be done at 4.5. a
    downloads from 2 to 4, and then takes half of the rate from b, which has 1 kbit left: b ends at
    5. If c begins to download at 3, a has its model only at 5, when b is done."""
    shared = SharedLine(down_bps=4000.0, up_bps=2000.0)
    link = FluidLink(
        shared,
        dict.fromkeys("abc", LinkModel()),
        dict.fromkeys("abc", (BYTES_DOWN, BYTES_UP)),
    )
    link.begin("b", 1, BegunWork(0.0, 0.5))
    link.play(2.0)
    link.begin("a", 2, BegunWork(2.0, 0.0))
    link.play(3.0)
    assert link.predicted({})["b"] == 5.0
    assert link.predicted({"c": (3, BegunWork(3.0, 0.0))})["b"] == 4.5
