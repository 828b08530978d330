"""The part of the report on links: a few transfers whose seconds a person can divide."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from tests.unit.emulator.charts import charts_of, findings

from muster.emulator.records.account import Account
from muster.emulator.records.summary import outline
from muster.emulator.report import link_sections, write_report
from muster.emulator.report.intervals import Bend, Overlaps
from muster.emulator.report.links import (
    NOBODY,
    links_of,
    moves_in,
    rate_text,
    slow_seconds,
    slowed_by,
    totals_of,
    waited_for,
)
from muster.emulator.report.section import ReportSection
from muster.emulator.report.use import span_of, used

if TYPE_CHECKING:
    from tests.unit.emulator.conftest import RunFolder

SECTIONS = (link_sections.rates, link_sections.waits, link_sections.matrix, link_sections.use)
FIGURE_NAMES = ("rates", "waits", "links")

RURAL = """
[[groups]]
name = "rural"
link = { up = "8 Mbit/s", down = "80 Mbit/s" }
shared_link = { up = "8 Mbit/s" }
"""
SLOTS = """
[[groups]]
name = "rural"
shared_link = { slots = 1 }
[[groups]]
name = "office"
"""


def waits(run: RunFolder, by: str = "client") -> dict[str, dict[str, float]]:
    with Account(run.commit()) as account:
        return table_of(waited_for(moves_in(account), links_of(account.scenario), by))


def slows(run: RunFolder, by: str = "client") -> dict[str, dict[str, float]]:
    with Account(run.commit()) as account:
        return table_of(slowed_by(moves_in(account), by))


def table_of(seconds: pd.DataFrame) -> dict[str, dict[str, float]]:
    """By who lost them and to whom, without what is nothing; UNIX times have microseconds."""
    rows = seconds.round(6).to_dict("index")
    return {
        str(name): {str(whom): value for whom, value in row.items() if value}
        for name, row in rows.items()
    }


def section_of(make: Callable[..., ReportSection | None], folder: Path) -> ReportSection | None:
    with Account(folder) as account:
        return make(account, outline(account))


def rows_of(make: Callable[..., ReportSection | None], folder: Path) -> list[list[str]]:
    section = section_of(make, folder)
    assert section is not None
    assert section.table is not None
    assert all(len(row) == len(section.table.columns) for row in section.table.rows)
    return [list(row) for row in section.table.rows]


# --- waiting -------------------------------------------------------------------------------------


def test_a_second_of_waiting_is_divided_among_those_who_transfer_in_it(run: RunFolder) -> None:
    run.clients("a", "b", "c")
    run.round({})
    run.transfer("a", "down", 0.0, 0.0, 10.0)
    run.transfer("b", "up", 0.0, 4.0, 4.0)
    run.transfer("c", "down", 2.0, 8.0, 1.0)
    assert waits(run) == {
        "a": {},
        "b": {"a": 4.0},
        "c": {"a": 2 + 2 + 2, "b": 2.0},  # alone till 4, with b till 8, alone till 10
    }


def test_waiting_while_nobody_transfers_is_nobodys(run: RunFolder) -> None:
    run.clients("a", "b")
    run.round({})
    run.transfer("a", "down", 0.0, 1.0, 2.0)
    run.transfer("b", "down", 5.0, 3.0, 1.0)
    assert waits(run) == {"a": {NOBODY: 1.0}, "b": {NOBODY: 3.0}}


def test_a_device_does_not_wait_for_itself(run: RunFolder) -> None:
    run.clients("a", "b", group="rural")
    run.round({})
    run.transfer("a", "up", 0.0, 0.0, 4.0)
    run.transfer("a", "down", 0.0, 2.0, 1.0)
    run.transfer("b", "down", 0.0, 2.0, 2.0)
    assert waits(run) == {"a": {NOBODY: 2.0}, "b": {"a": 2.0}}
    assert waits(run, "group") == {"rural": {"rural": 2.0, NOBODY: 2.0}}


def test_where_slots_queue_the_own_group_comes_first(run: RunFolder) -> None:
    run.scenario(SLOTS)
    run.clients("a", "b", group="rural")
    run.clients("x", "y", group="office")
    run.round({})
    run.transfer("a", "up", 0.0, 0.0, 4.0)
    run.transfer("x", "up", 0.0, 0.0, 10.0)
    run.transfer("b", "up", 0.0, 6.0, 1.0)
    run.transfer("y", "up", 0.0, 4.0, 1.0)
    assert waits(run) == {
        "a": {},
        "x": {},
        "b": {"a": 4.0, "x": 0.5 + 1.0, "y": 0.5},  # y transfers from 4 to 5
        "y": {"a": 2.0, "x": 2.0},
    }
    assert waits(run, "group") == {
        "rural": {"rural": 4.0, "office": 2.0},
        "office": {"rural": 2.0, "office": 2.0},
    }


@pytest.mark.parametrize("by", ["client", "group"])
def test_attribution_adds_up_and_agrees_with_a_division_second_by_second(
    run: RunFolder, by: str
) -> None:
    chance = np.random.default_rng(7)
    run.scenario(SLOTS)
    run.clients(*(f"r{number}" for number in range(6)), group="rural")
    run.clients(*(f"o{number}" for number in range(6)), group="office")
    run.round({})
    for number in range(6):
        for group in "ro":
            whole = chance.integers([0, 0, 1], [10, 20, 10]).astype(float)
            run.transfer(f"{group}{number}", "down", *whole)
    with Account(run.commit()) as account:
        moves, links = moves_in(account), links_of(account.scenario)
    found = waited_for(moves, links, by)
    wanted = second_by_second(moves, by)
    for name, row in found.iterrows():
        assert row.sum() == pytest.approx(moves.loc[moves[by] == name, "wait_s"].sum())
        for whom, seconds in row.items():
            assert seconds == pytest.approx(wanted.get((name, whom), 0.0), abs=1e-6)


def second_by_second(moves: pd.DataFrame, by: str) -> dict[tuple[Any, Any], float]:
    """The rule as it is written down; all times are whole seconds."""
    found: dict[tuple[Any, Any], float] = {}
    rows = moves.to_dict("records")
    for row in rows:
        for second in np.arange(row["asked"], row["began"]) + 0.5:
            there = [one for one in rows if one["began"] < second < one["ended"]]
            own = [one for one in there if one["group"] == row["group"] == "rural"]
            holders = [one[by] for one in own or there] or [NOBODY]
            for whom in holders:
                found[row[by], whom] = found.get((row[by], whom), 0.0) + 1 / len(holders)
    return found


def test_the_worst_waiters_have_the_rows_of_the_whole_table(run: RunFolder) -> None:
    run.clients("a", "b", "c")
    run.round({})
    run.transfer("a", "down", 0.0, 0.0, 10.0)
    run.transfer("b", "up", 0.0, 4.0, 4.0)
    run.transfer("c", "down", 2.0, 8.0, 1.0)
    with Account(run.commit()) as account:
        moves = moves_in(account)
    some = waited_for(moves, {}, "client", ["c"])
    assert some.index.to_list() == ["c"]
    assert some.loc["c"].to_dict() == waited_for(moves, {}, "client").loc["c"].to_dict()


# --- slowing -------------------------------------------------------------------------------------


def test_two_that_share_a_cap_slow_each_other(run: RunFolder) -> None:
    run.scenario(RURAL)
    run.clients("a", "b", "c", group="rural")
    run.round({})
    run.transfer("a", "up", 0.0, 0.0, 2.0)  # 1 s alone, at 8 Mbit/s
    run.transfer("b", "up", 0.0, 0.0, 2.5)
    run.transfer("c", "down", 0.0, 0.0, 2.0)  # 0.1 s alone; nothing is shared downwards
    assert slows(run) == {"a": {"b": 1.0}, "b": {"a": 1.5}, "c": {NOBODY: 1.9}}


def test_slowing_is_divided_by_how_long_the_others_were_there(run: RunFolder) -> None:
    run.scenario(RURAL)
    run.clients("a", "b", "c", group="rural")
    run.round({})
    run.transfer("a", "up", 0.0, 0.0, 5.0)
    run.transfer("b", "up", 0.0, 0.0, 1.0)
    run.transfer("c", "up", 1.0, 0.0, 3.0)
    assert slows(run) == {"a": {"b": 1.0, "c": 3.0}, "b": {}, "c": {"a": 2.0}}
    assert slows(run, "group") == {"rural": {"rural": 6.0}}


def test_a_slow_transfer_that_was_alone_was_slowed_by_nobody(run: RunFolder) -> None:
    run.scenario(RURAL)
    run.clients("a", "b", group="rural")
    run.round({})
    run.transfer("a", "up", 0.0, 0.0, 3.0)
    run.transfer("b", "up", 5.0, 0.0, 0.5)  # faster than its link: a buffer swallowed it
    assert slows(run) == {"a": {NOBODY: 2.0}, "b": {}}


def test_without_a_limit_nothing_is_slow(run: RunFolder) -> None:
    run.clients("a")
    run.round({})
    run.transfer("a", "up", 0.0, 0.0, 3.0)
    with Account(run.commit()) as account:
        assert slow_seconds(moves_in(account)).to_list() == [0.0]


# --- links ---------------------------------------------------------------------------------------


def test_the_part_of_a_cap_is_by_how_many_transfer_at_once(run: RunFolder) -> None:
    run.scenario(RURAL)
    run.clients("a", "b", group="rural")
    run.round({}, seconds=4.0)
    run.transfer("a", "up", 0.0, 0.0, 4.0)
    run.transfer("b", "up", 0.0, 2.0, 2.0)
    run.transfer("a", "down", 0.0, 0.0, 1.0)
    with Account(run.commit()) as account:
        moves = moves_in(account).sort_values(["direction", "client"])
        totals = totals_of(moves, account.rounds).set_index("direction").loc["up"]
    assert moves["own_bps"].to_list() == [80e6, 8e6, 8e6]
    assert moves["fair_bps"].to_list() == [pytest.approx(math.nan, nan_ok=True), 6e6, 4e6]
    assert (totals["transfers"], totals["bytes"]) == (2, 2_000_000)
    assert (totals["median_s"], totals["median_wait_s"]) == (3.0, 1.0)
    assert (totals["waiting"], totals["transferring"]) == (2 / 8, 6 / 8)


TREE = """
[[groups]]
name = "phones"
link = { cell = "north" }
[groups.shared_link]
name = "region"
up = "8 Mbit/s"
[groups.shared_link.cells]
south = { up = "4 Mbit/s" }
county = {}
north = { up = "3 Mbit/s", within = "county" }
[[groups]]
name = "office"
link = { cell = "south" }
[groups.shared_link]
name = "region"
up = "8 Mbit/s"
[groups.shared_link.cells]
south = { up = "4 Mbit/s" }
county = {}
north = { up = "3 Mbit/s", within = "county" }
"""


def test_the_part_of_a_tree_is_that_of_the_narrowest_cell(run: RunFolder) -> None:
    run.scenario(TREE)
    run.clients("a", "b", group="phones")
    run.clients("c", group="office")
    run.round({}, seconds=4.0)
    for client in "abc":
        run.transfer(client, "up", 0.0, 0.0, 4.0)
    with Account(run.commit()) as account:
        moves = moves_in(account)
    assert moves["shared_bps"].to_list() == [3e6, 3e6, 4e6]
    assert moves["fair_bps"].to_list() == pytest.approx([1.5e6, 1.5e6, 8e6 / 3])
    assert set(moves["part"]) == {"all"}


def test_devices_of_cells_without_a_link_above_slow_only_their_cell(run: RunFolder) -> None:
    run.scenario(TREE.replace('up = "8 Mbit/s"', ""))
    run.clients("a", "b", group="phones")
    run.clients("c", group="office")
    run.round({}, seconds=9.0)
    for client in "abc":
        run.transfer(client, "up", 0.0, 0.0, 4.0)  # 1 MB: 8 s / 3 alone in the north
    slow = slows(run)
    assert slow["a"] == {"b": pytest.approx(4 - 8 / 3, abs=1e-6)}
    assert slow["c"] == {NOBODY: pytest.approx(2.0)}


def test_links_that_cannot_be_read_have_no_limit() -> None:
    links = links_of(
        {
            "groups": [
                {"name": "moved", "link": {"trace": "/nowhere.txt"}},
                {"name": "bare", "link": {"up": 5}},
                {"name": "spread", "link": {"up": "8 Mbit/s", "spread": 0.5}},
            ]
        }
    )
    assert links["moved"].line_of("a").up_bps is None
    assert links["bare"].line_of("a").up_bps is None
    rates = {links["spread"].line_of(name).up_bps for name in ("a", "b")}
    assert len(rates) == 2


def test_overlaps_are_seconds_between_two_moments() -> None:
    intervals = Overlaps(np.array([0.0, 2.0, 8.0]), np.array([4.0, 6.0, 9.0]))
    begins, ends = np.array([0.0, 1.0, 6.0, 3.0]), np.array([10.0, 3.0, 8.0, 3.0])
    assert intervals.between(begins, ends).tolist() == [9.0, 3.0, 0.0, 0.0]


def test_a_bent_clock_stands_while_nobody_transfers() -> None:
    bend = Bend.of(np.array([1.0, 2.0]), np.array([4.0, 3.0]))
    assert bend.at(np.array([0.0, 1.0, 2.0, 3.0, 4.0, 9.0])).tolist() == [0, 0, 1, 1.5, 2.5, 2.5]


# --- traffic -------------------------------------------------------------------------------------


def test_use_is_what_moved_of_what_could_have(run: RunFolder) -> None:
    run.traffic("rural", (500, 10, 1000, None), (1000, 20, 1000, None))
    with Account(run.commit()) as account:
        table = used(account.traffic, span_of(account.traffic), 10)
    assert table["up"].to_list() == pytest.approx([0.5, 1.0])
    assert table["up_bps"].to_list() == pytest.approx([4000.0, 8000.0])
    assert table["down"].isna().all()
    assert table["down_bps"].to_list() == pytest.approx([80.0, 160.0])


def test_use_of_long_runs_is_in_longer_intervals_and_what_is_not_told_of_was_quiet() -> None:
    traffic = pd.DataFrame(
        {
            "group": "rural", "at": [1.0, 2.0, 3.0, 4.0, 9.0, 10.0], "seconds": 1.0,
            "bytes_up": [0.0, 10.0, 10.0, 10.0, 4.0, 4.0], "bytes_down": 0.0,
            "capacity_up": 10.0, "capacity_down": math.nan,
        }
    )  # fmt: skip
    table = used(traffic, (0.0, 10.0), 5)
    assert table["up"].to_list() == pytest.approx([0.5, 1.0, 0.0, 0.0, 0.4])
    assert table["up_bps"].to_list() == pytest.approx([40.0, 80.0, 0.0, 0.0, 32.0])


def test_traffic_that_makes_no_sense_is_passed_over(run: RunFolder) -> None:
    run.journal({"event": "traffic", "group": "a"}, {"event": "traffic", "seconds": "x"})
    run.traffic("a", (1, 1, None, None))
    with Account(run.commit()) as account:
        assert len(account.traffic) == 1
        assert math.isnan(account.traffic["capacity_up"][0])


def test_a_link_that_could_move_nothing_was_not_used(run: RunFolder) -> None:
    run.traffic("cut", (0, 0, 0, 1000), (0, 500, 0, 1000))
    with Account(run.commit()) as account:
        table = used(account.traffic, span_of(account.traffic), 10)
    assert table["up"].isna().all()
    assert table["down"].to_list() == pytest.approx([0.0, 0.5])
    write_report(run.path)


@pytest.mark.parametrize(
    ("bps", "text"),
    [(math.nan, "–"), (12.0, "12 bit/s"), (750e3, "750 kbit/s"), (999_700.0, "1 Mbit/s"),
     (1.25e9, "1.25 Gbit/s")],
)  # fmt: skip
def test_rates_are_written_in_units_that_read_well(bps: float, text: str) -> None:
    assert rate_text(bps) == text


# --- sections and figures ------------------------------------------------------------------------


def contended(run: RunFolder) -> Path:
    """Two devices that share an uplink; the second waits while the first receives."""
    run.scenario(RURAL)
    run.clients("a", "b", group="rural")
    run.round({"a": "folded", "b": "folded"}, seconds=8.0)
    run.transfer("a", "down", 0.0, 0.0, 1.0)
    run.transfer("b", "down", 0.0, 1.0, 1.0)
    run.transfer("a", "up", 3.0, 0.0, 2.0)
    run.transfer("b", "up", 3.0, 0.0, 2.0)
    run.traffic("rural", (0, 1e6, 1e6, None), (0, 1e6, 1e6, None), (0, 0, 1e6, None),
                (1e6, 0, 1e6, None), (1e6, 0, 1e6, None))  # fmt: skip
    return run.commit()


def test_a_run_without_links_says_nothing_of_them(run: RunFolder) -> None:
    run.clients("a")
    run.round({"a": "folded"})
    folder = run.commit()
    assert [section_of(make, folder) for make in SECTIONS] == [None] * 4
    with Account(folder) as account:
        assert "transfers" not in outline(account)


def test_the_sections_say_how_long_and_for_whom(run: RunFolder) -> None:
    folder = contended(run)
    assert rows_of(link_sections.rates, folder) == [
        ["rural", "down", "2", "1.9 MiB", "1 s", "1 s", "0.50 s", "8 Mbit/s", "80 Mbit/s", "–", "–",
         "6.2 %", "12.5 %"],
        ["rural", "up", "2", "1.9 MiB", "2 s", "2 s", "–", "4 Mbit/s", "8 Mbit/s", "8 Mbit/s",
         "4 Mbit/s", "0.0 %", "25.0 %"],
    ]  # fmt: skip
    assert rows_of(link_sections.waits, folder) == [
        ["b", "rural", "1 s", "a, 1 s", "1.9 s", "a, 1 s"],
        ["a", "rural", "–", "", "1.9 s", "b, 1 s"],
    ]
    assert rows_of(link_sections.matrix, folder) == [
        ["a", "slowed", "–", "1 s", "0.90 s", "1.9 s"],
        ["b", "waited", "1 s", "–", "–", "1 s"],
        ["b", "slowed", "1 s", "–", "0.90 s", "1.9 s"],
    ]
    assert rows_of(link_sections.use, folder) == [
        ["rural", "down", "1.9 MiB", "3.2 Mbit/s", "–", "–", "–"],
        ["rural", "up", "1.9 MiB", "3.2 Mbit/s", "8 Mbit/s", "40.0 %", "40.0 %"],
    ]


def test_the_use_of_a_link_of_several_groups_is_shown_as_a_tree(run: RunFolder) -> None:
    run.scenario(TREE)
    run.clients("a", group="phones")
    run.clients("c", group="office")
    run.traffic("region", (5e5, 0, 1e6, None), north=(3e5, 0, 3.75e5, None),
                south=(2e5, 0, 5e5, None), county=(3e5, 0, None, None))  # fmt: skip
    folder = run.commit()
    rows = rows_of(link_sections.use, folder)
    assert [row[0] for row in rows[1::2]] == [
        "region (phones, office)", "· south", "· county", "· · north",
    ]  # fmt: skip
    assert [row[4:6] for row in rows[1::2]] == [
        ["8 Mbit/s", "50.0 %"], ["4 Mbit/s", "40.0 %"], ["–", "–"], ["3 Mbit/s", "80.0 %"],
    ]  # fmt: skip
    assert [title.split(":")[0] for title in findings("links", folder)] == [
        "region (phones, office)", "region (phones, office)", "south", "south", "county", "north",
        "north",
    ]  # fmt: skip


@pytest.mark.slow
def test_the_figures_are_written_and_say_what_they_show(run: RunFolder) -> None:
    folder = contended(run)
    page = write_report(folder, "png").read_text(encoding="utf-8")
    for name in FIGURE_NAMES:
        assert (folder / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert all(finding in page for finding in findings(name, folder))
    assert findings("rates", folder) == [
        "rural down: median 8 of 80 Mbit/s",
        "rural up: median 4 of 8 Mbit/s",
    ]
    assert findings("waits", folder) == [
        "Round 1, the only one: 8 s; devices waited 1 s and transferred 6 s in all"
    ]
    assert findings("links", folder) == [
        "rural: up 40.0 % used, 40.0 % of the time nearly full",
        "rural: down 3.2 Mbit/s, at most 8 Mbit/s",
    ]


@pytest.mark.parametrize("name", FIGURE_NAMES)
def test_a_figure_without_data_has_no_chart(run: RunFolder, name: str) -> None:
    assert charts_of(name, run.commit()) == []


def test_a_transfer_of_a_round_that_was_never_committed_breaks_nothing(run: RunFolder) -> None:
    run.clients("a")
    run.transfer("a", "down", 0.0, 0.0, 0.0)
    assert "Transfer time against link" in write_report(run.commit()).read_text(encoding="utf-8")


def test_transfers_without_numbers_strangers_and_no_time_break_nothing(run: RunFolder) -> None:
    run.clients("a")
    run.round({})
    run.transfer("a", "down", 0.0, 0.0, 0.0)
    run.transfer("a", "up", 1.0, math.inf, 1.0)
    run.transfer("stranger", "up", 0.0, -1.0, 1.0, rate_bps=None, bytes=0)
    run.traffic("stranger", (0, 0, 0, None))
    write_report(run.commit())
    rows = rows_of(link_sections.rates, run.path)
    assert [row[:3] for row in rows] == [["phones", "down", "1"], ["unknown", "up", "1"]]


def test_of_many_devices_the_longest_are_shown(run: RunFolder) -> None:
    names = [f"d{number:02}" for number in range(50)]
    run.clients(*names)
    run.round({})
    for number, name in enumerate(names):
        run.transfer(name, "down", 0.0, 0.0, 1.0 + number)
    [chart] = charts_of("waits", run.commit())
    assert [label for _, label in chart.y.ticks] == names[10:]
    assert chart.x.label.endswith("(the 40 of 50 devices that took longest)")


def test_the_slowest_round_and_the_median_one_are_shown(run: RunFolder) -> None:
    run.clients("a")
    for seconds in (3.0, 9.0, 5.0, 1.0, 4.0):
        run.round({}, seconds=seconds)
        run.transfer("a", "down", 0.0, 0.0, 1.0)
    told = [finding.split(":")[0] for finding in findings("waits", run.commit())]
    assert told == ["Round 2, the slowest", "Round 5, the median"]


def test_the_matrix_of_many_devices_is_by_group(run: RunFolder) -> None:
    run.scenario(RURAL)
    run.clients(*(f"a{number}" for number in range(13)), group="rural")
    run.round({})
    for number in range(13):
        run.transfer(f"a{number}", "up", number, 1.0, 1.0)
    assert rows_of(link_sections.matrix, run.commit()) == [
        ["rural", "waited", "12 s", "1 s", "13 s"]
    ]


def test_the_summary_has_what_every_group_transferred(run: RunFolder) -> None:
    with Account(contended(run)) as account:
        assert outline(account)["transfers"] == {
            "rural": {
                "down": {"transfers": 2, "bytes": 2_000_000, "wait_s": 1.0, "seconds": 2.0},
                "up": {"transfers": 2, "bytes": 2_000_000, "wait_s": 0.0, "seconds": 4.0},
            }
        }
