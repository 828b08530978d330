"""Links in the scenario's model: exact seconds, who gets a slot."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.common.config import Section, validate
from muster.common.errors import ConfigError
from muster.common.lines import LinkModel
from muster.common.shared_lines import BegunWork, Cell, SharedLine, extra_seconds, granted, turns
from muster.common.units import Bandwidth, Duration, Size

MEGA = 1e6
LINE = LinkModel(down_bps=8 * MEGA, up_bps=2 * MEGA, rtt_s=0.1)


def begun(lines: Mapping[str, LinkModel]) -> dict[str, BegunWork]:
    return {client: BegunWork(0.0, line.transfer_s(MEGA, MEGA)) for client, line in lines.items()}


def test_transfers_take_bytes_over_rate_and_two_round_trips() -> None:
    assert LINE.transfer_s(MEGA, MEGA) == pytest.approx(1 + 4 + 0.2)
    assert LinkModel().transfer_s(MEGA, MEGA) == 0


def test_a_shared_cap_is_divided_among_those_who_transfer() -> None:
    shared = SharedLine(up_bps=4 * MEGA)
    lines = {f"d{n}": LINE for n in range(4)}
    extra = extra_seconds(
        shared, 7, "g", 1, lines, dict.fromkeys(lines, (MEGA, MEGA)), begun(lines)
    )
    # A megabyte at a fourth of 4 Mbit/s takes 8 s instead of 4.
    assert extra == pytest.approx(dict.fromkeys(lines, 4.0))
    alone = extra_seconds(shared, 7, "g", 1, {"d0": LINE}, {"d0": (MEGA, MEGA)}, begun(lines))
    assert alone == pytest.approx({"d0": 0.0})


def test_with_queueing_slots_devices_take_turns() -> None:
    shared = SharedLine(slots=2, overflow="queue")
    lines = {f"d{n}": LINE for n in range(5)}
    extra = extra_seconds(
        shared, 7, "g", 3, lines, dict.fromkeys(lines, (MEGA, MEGA)), begun(lines)
    )
    once = LINE.transfer_s(MEGA, MEGA)
    order = turns(7, "g", 3, lines)
    waited = [extra[client] / once for client in order]
    assert waited == pytest.approx([0, 0, 1, 1, 2])


@given(
    st.sets(st.sampled_from([f"d{n}" for n in range(9)])),
    st.integers(1, 9),
    st.sampled_from(["queue", "collide", "subset"]),
)
def test_slots_follow_their_rule(active: set[str], slots: int, overflow: str) -> None:
    shared = SharedLine.model_validate({"slots": slots, "overflow": overflow})
    through = granted(shared, 7, "g", 4, active)
    assert through <= active
    if overflow == "queue" or len(active) <= slots:
        assert through == active
    else:
        assert len(through) == (slots if overflow == "subset" else 0)


def test_a_subset_is_drawn_fairly_and_anew_in_every_round() -> None:
    shared, active = SharedLine(slots=2, overflow="subset"), ["a", "b", "c"]
    rounds = range(1, 601)
    times = dict.fromkeys(active, 0)
    for round in rounds:
        for client in granted(shared, 7, "g", round, active):
            times[client] += 1
    assert all(abs(count / len(rounds) - 2 / 3) < 0.06 for count in times.values())


def test_the_devices_of_a_cell_divide_its_rate_in_a_round() -> None:
    cells = {"all": Cell(up_bps=3e6), "few": Cell(up_bps=1e6, down_bps=2e6, within="all")}
    shared = SharedLine(up_bps=10e6, cells=cells)
    lines = {
        name: LinkModel(up_bps=4e6, rtt_s=0.1, cell=cell)
        for name, cell in (("a", "few"), ("b", "few"), ("c", "all"), ("d", None))
    }
    extra = extra_seconds(shared, 7, "g", 1, lines, dict.fromkeys(lines, (1e6, 1e6)), begun(lines))
    # Up: 0.5, 0.5, 1 and 2.5 Mbit/s instead of 4. Down: 1 Mbit/s instead of no limit.
    assert extra == pytest.approx({"a": 14 + 8, "b": 14 + 8, "c": 6, "d": 8 / 2.5 - 2})
    assert shared.least(lines["a"], 4).up_bps == 0.25e6
    assert shared.least(lines["d"], 4).up_bps == 2.5e6


class Quantities(Section):
    rate: Bandwidth = 1.0
    delay: Duration = 1.0
    size: Size = 1.0


def test_quantities_come_with_their_units() -> None:
    values = {"rate": "0.75 Mbit/s", "delay": "840ms", "size": "20 MiB"}
    found = validate(Quantities, values, "test")
    assert (found.rate, found.delay, found.size) == (750_000.0, 0.84, 20 * 2**20)


@pytest.mark.parametrize(
    "wrong", [6, "6", "6 MB/s", "6 mbit/s", "-1 Mbit/s", "Mbit/s", "1e999 Mbit/s"]
)
def test_a_number_without_its_unit_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigError, match=r"with a unit|finite|not negative"):
        validate(Quantities, {"rate": wrong}, "test")


@given(st.floats(1e-6, 1e12), st.floats(1e-9, 1e6))
def test_what_is_written_into_a_run_folder_is_what_was_read(rate: float, delay: float) -> None:
    found = Quantities.model_construct(rate=rate, delay=delay)
    again = Quantities.from_json(found.to_json())
    assert (again.rate, again.delay) == (rate, delay)
