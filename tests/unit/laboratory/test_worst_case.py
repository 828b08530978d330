"""Schedules, families, searches and words of worst cases, without runs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.common.errors import ConfigError
from muster.common.life_record import LifeDevice, LifeRecord, LifeRound, LifeRow, life_record
from muster.laboratory.worst_case.families import FAMILIES, usual_family
from muster.laboratory.worst_case.library import Library
from muster.laboratory.worst_case.schedule import (
    Divisions,
    FaultlessRun,
    FaultSchedule,
    course_of,
    schedule,
    struck,
)
from muster.laboratory.worst_case.search import search
from muster.laboratory.worst_case.shrinking import shrunk
from muster.laboratory.worst_case.words import in_words
from muster.server.rounds.arrivals import RecordedArrivals

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ROUNDS = 10
GROUPS = {"a": ["a-1", "a-2"], "b": ["b-1", "b-2"]}


def record() -> LifeRecord:
    devices = [LifeDevice(client=c, group=g) for g, members in GROUPS.items() for c in members]
    rows = [
        LifeRow(n, d.client, "accept", outcome="folded", counted=n, examples=4, x='{"x": 1.0}')
        for n in range(1, ROUNDS + 1)
        for d in devices
    ]
    return life_record("a run", "rounds", devices, [LifeRound()] * ROUNDS, rows)


def course(budget: float = 0.2, outlives_round: bool = True) -> FaultlessRun:
    classes = {"0": ["a-1", "b-1"], "1": ["a-2", "b-2"]}
    return course_of(record(), budget, Divisions(GROUPS, classes, outlives_round))


@pytest.mark.parametrize("name", FAMILIES)
@given(data=st.data())
def test_every_schedule_of_a_family_keeps_within_the_budget(name: str, data: st.DataObject) -> None:
    run, family = course(), FAMILIES[name]
    assert family.refusal(run.divisions) is None
    size = family.size(run)
    assert size >= 2
    numbers = st.lists(st.floats(0, 1), min_size=size, max_size=size)
    found = family.schedule(run, np.array(data.draw(numbers)))
    assert set(found.cells) <= set(run.cells)
    assert len(found.cells) == len(set(found.cells)) <= run.limit
    # Calls that are lost while a device is late are charged, too.
    there = {(r.round, r.client): r for r in struck(record(), found).rows}
    other = [r for r in record().rows if there[r.round, r.client].counted != r.counted]
    assert len(other) <= run.limit


@pytest.mark.parametrize("budget", [0.03, 0.05, 0.1, 0.2, 1.0])
def test_an_update_is_late_by_no_more_than_the_budget_allows(budget: float) -> None:
    run, family = course(budget), FAMILIES["late"]
    found = family.schedule(run, np.ones(family.size(run)))
    there = {(r.round, r.client): r for r in struck(record(), found).rows}
    other = [r for r in record().rows if there[r.round, r.client].counted != r.counted]
    assert len(other) <= run.limit


def test_without_a_name_groups_are_searched_if_there_are_several() -> None:
    several = course().divisions
    assert usual_family(several) == "groups"
    assert usual_family(several._replace(groups={"a": ["a-1", "a-2"]})) == "outages"


def test_simple_schedules_take_one_set_and_use_the_budget() -> None:
    run, groups = course(), FAMILIES["groups"]
    found = [groups.schedule(run, keys) for keys in groups.simple(run)]
    assert in_words(run, found[0]) == "without group a from round 7 to 10"
    assert len(found[0].cells) == run.limit == 8


def test_a_device_that_is_struck_is_away_and_its_covariates_are_known() -> None:
    changed = struck(record(), schedule([(3, "a-1"), (4, "a-1")]))
    arrivals = RecordedArrivals(changed, outlives_round=False)
    assert arrivals.to_call(2) == ["a-1", "a-2", "b-1", "b-2"]
    assert arrivals.to_call(3) == ["a-2", "b-1", "b-2"]
    assert arrivals.round(4).counted == {"a-2", "b-1", "b-2"}
    row = arrivals.rows(3)["a-1"]
    assert (row.answer, row.reason, row.x) == ("decline", "offline", '{"x": 1.0}')


def test_a_late_update_counts_later_and_its_device_is_not_called_before() -> None:
    changed = struck(record(), FaultSchedule(((3, "a-1"),), delay=2))
    arrivals = RecordedArrivals(changed, outlives_round=True)
    assert "a-1" in arrivals.to_call(3)
    assert "a-1" not in arrivals.round(3).counted
    assert "a-1" in arrivals.round(5).counted
    assert all("a-1" not in arrivals.to_call(number) for number in (4, 5))
    assert "a-1" in arrivals.to_call(6)
    # Nothing counts after the last round.
    last = RecordedArrivals(struck(record(), FaultSchedule(((10, "b-2"),), 1)), outlives_round=True)
    assert "b-2" not in last.to_call(10)


def overlap_with_group_b_at_the_end(schedules: Sequence[FaultSchedule]) -> list[float]:
    """A harm that is known: how much of group b is away in the last four rounds."""
    aim = {(n, c) for n in range(7, 11) for c in GROUPS["b"]}
    return [float(len(aim & set(each.cells))) for each in schedules]


@pytest.mark.parametrize("family", ["groups", "outages", "independent"])
def test_the_search_finds_what_harms_and_more_than_random(family: str) -> None:
    run = course()
    found = search(run, FAMILIES[family], overlap_with_group_b_at_the_end, 200, seed=3)
    assert found.harm > 1.5 * float(np.mean(found.random))
    assert found.harm >= max(found.random)
    assert overlap_with_group_b_at_the_end([found.worst]) == [found.harm]
    again = search(run, FAMILIES[family], overlap_with_group_b_at_the_end, 200, seed=3)
    assert again == found
    if family == "groups":
        assert in_words(run, found.worst) == "without group b from round 7 to 10"


def test_a_schedule_becomes_short_to_read() -> None:
    run = course()
    aim = [(n, c) for n in range(7, 11) for c in GROUPS["b"]]
    ragged = schedule([*aim[:-1], (2, "a-1")])
    assert "without group" not in in_words(run, ragged)
    short, harm, _ = shrunk(run, ragged, 7.0, overlap_with_group_b_at_the_end)
    assert in_words(run, short) == "without group b from round 7 to 10"
    assert harm == 8.0
    kept = shrunk(run, ragged, 0.0, overlap_with_group_b_at_the_end)
    assert kept == (ragged, 0.0, 0.0), "nothing is to be kept of no harm"


def test_a_worse_schedule_that_is_met_on_the_way_is_made_shorter_in_place_of_the_first() -> None:
    run = course()
    played = []

    def harms(schedules: Sequence[FaultSchedule]) -> list[float]:
        """By the number of cells: by far the worst is one of four, on the way to two."""
        values = [{4: 10.0, 2: 1.0}.get(len(each.cells), 0.5) for each in schedules]
        played.extend(values)
        return values

    first = schedule([(n, "b-1") for n in range(5, 11)])
    found = shrunk(run, first, 0.5, harms)
    assert found.harm == found.largest == max(played) == 10.0
    assert len(found.schedule.cells) == 4


def test_words_name_devices_and_lateness() -> None:
    run = course()
    some = schedule([(2, "a-1"), (3, "a-1"), (7, "a-1"), (7, "b-1")])
    assert in_words(run, some) == "without b-1 in round 7, a-1 in rounds 2–3, 7"
    assert in_words(run, schedule([(7, "b-1")], delay=2)) == "late by 2 rounds: b-1 in round 7"
    assert in_words(run, schedule([])) == "nothing"
    of_class = schedule([(n, c) for n in (4, 5) for c in ("a-2", "b-2")])
    assert in_words(run, of_class) == "without the devices with class 1 from round 4 to 5"


def test_a_library_plays_nothing_twice_also_after_an_end(tmp_path: Path) -> None:
    played: list[FaultSchedule] = []

    def play(schedules: Sequence[FaultSchedule]) -> list[float]:
        played.extend(schedules)
        return [math.nan if each.delay else 1.5 for each in schedules]

    path = tmp_path / "played.jsonl"
    both = [schedule([(1, "a-1")]), schedule([(1, "a-1")], delay=1)]
    first = Library(path, play, lambda number: None)
    assert first.measures([*both, both[0]])[0] == 1.5
    with path.open("a") as lines:
        lines.write('{"measure": 1')  # the process was killed here
    again = Library(path, play, lambda number: None)
    assert math.isnan(again.measures(both)[1])
    assert played == both
    damaged = path.read_text().replace("cells", "cell", 1)
    path.write_text(damaged)
    with pytest.raises(ConfigError, match="line 1: expected a schedule that was played"):
        Library(path, play, lambda number: None)
