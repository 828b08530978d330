"""Plans of modes in which updates outlive their round, against arithmetic by hand."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.patches import StepPatch

from muster.common.config import validate
from muster.emulator.planning import plan
from muster.emulator.planning.result import Learning, Plan, write_plan
from muster.emulator.report.plan_figure import draw
from muster.emulator.report.plan_tables import describe
from muster.emulator.scenario.scenario import Scenario

LEARNING = Learning([10, 10], parameters=100)
K1: dict[str, Any] = {"kind": "buffered", "k": 1, "concurrency": 2}


def planned(mode: dict[str, Any] = K1, clock: str = "rounds", **server: Any) -> Plan:
    """The plan of a device whose work takes 1 s, and of one whose work takes 2.5 s."""
    values = {
        "name": "planned",
        "clock": {"kind": clock, "round_s": 2.0},
        "task": "linear",
        "training": {"local_epochs": 1},
        "server": {"rounds": 7, "mode": mode, **server},
        "groups": [
            {"name": "a", "count": 1, "device": {"examples_per_s": 10}},
            {"name": "b", "count": 1, "device": {"examples_per_s": 4}},
        ],
    }
    return plan(validate(Scenario, values, "test"), LEARNING)


def staleness(found: Plan, group: int) -> list[int | None]:
    """The staleness of the group's update in every round; None if none counts."""
    counting = found.groups[group].counting
    assert counting is not None
    pairs = zip(counting.folded, counting.staleness, strict=True)
    return [int(age) if folded else None for folded, age in pairs]


def modelled(**server: Any) -> Plan:
    return planned({"kind": "synchronous"}, "modelled", rounds=4, **server)


def test_rounds_that_last_as_long_as_their_work_are_planned() -> None:
    """Until both have finished, until the first has, and until the deadline comes."""
    assert modelled().times_s.tolist() == [0, 2.5, 5, 7.5]
    assert modelled().end_s == 10
    assert modelled(goal=1).times_s.tolist() == [0, 1, 2, 3]
    late = modelled(deadline_s=2.0)
    assert late.times_s.tolist() == [0, 2, 4, 6]
    assert [group.late.tolist() for group in late.groups] == [[0, 0, 0, 0], [1, 1, 1, 1]]
    assert "4 rounds over 10 s of scenario time, exactly what a run does" in describe(modelled())


def test_a_plan_on_this_clock_is_drawn_and_written_as_any_synchronous_one(tmp_path: Path) -> None:
    found = modelled(goal=1)
    draw(found)
    write_plan(tmp_path, found)
    rows = list(csv.DictReader((tmp_path / "plan.csv").read_text().splitlines()))
    assert [row["scenario_s"] for row in rows] == ["0", "0", "1", "1", "2", "2", "3", "3"]
    assert "version" not in rows[0]


def test_a_version_after_every_update_is_planned_from_finish_to_finish() -> None:
    """a is called at 0, 1, 2, 3, 4 and 5, b at 0 and 2.5. At 5 both finish, and a comes first."""
    found = planned()
    assert found.times_s.tolist() == [0, 1, 2, 2.5, 3, 4, 5]
    assert found.end_s == 5
    assert staleness(found, 0) == [0, 0, None, 1, 0, 0, None]
    assert staleness(found, 1) == [None, None, 2, None, None, None, 3]
    assert [group.called.tolist() for group in found.groups] == [
        [1, 1, 1, 0, 1, 1, 1],
        [1, 0, 0, 1, 0, 0, 0],
    ]
    a, b = (group.counting for group in found.groups)
    assert a is not None
    assert b is not None
    assert (a.open, b.open) == (1, 0)


def test_with_calls_at_each_finish_every_finish_ends_a_round() -> None:
    """Both are called at 0. At 1 a has finished, and waits for b, so nobody else can be called. At
    2.5 there is a version, and it begins again."""
    found = planned({"kind": "buffered", "k": 2, "concurrency": 2, "calls_at": "finish"}, rounds=3)
    assert found.times_s.tolist() == [0, 1, 2.5, 3.5, 5, 6]
    assert found.versions is not None
    assert found.versions.tolist() == [0, 1, 1, 2, 2, 3]
    assert found.end_s == 7.5
    assert "make no version" not in describe(found), "this is how such rounds are"


def test_updates_that_would_be_too_old_are_counted_by_the_round_of_their_call() -> None:
    """The update of b from round 1 would count in round 3 with staleness 2."""
    found = planned({**K1, "max_staleness": 1}, rounds=3)
    counting = found.groups[1].counting
    assert counting is not None
    assert counting.too_stale.tolist() == [1, 0, 0]
    assert found.times_s.tolist() == [0, 1, 2]
    assert found.end_s == 3


def test_an_update_that_finishes_between_two_rounds_counts_in_the_next_one() -> None:
    """Rounds take updates for 0.5 s, and one opens every 2 s. a finishes at 1, after the first
    round, and b at 2.5, in the second one. Both are called again in the third round, because a is
    not called while its update waits. Nothing is stale, because no other version is made."""
    found = planned({"kind": "opportunistic"}, rounds=4, deadline_s=0.5)
    assert staleness(found, 0) == [None, 0, None, 0]
    assert staleness(found, 1) == [None, 0, None, 0]
    assert [group.called.tolist() for group in found.groups] == [[1, 0, 1, 0], [1, 0, 1, 0]]


def test_the_text_shows_what_becomes_of_calls_and_how_fast_versions_come() -> None:
    told = describe(planned())
    assert "7 versions in 7 rounds and 5 s of scenario time (5,040.0 versions per hour)" in told
    a, b = (line.split() for line in told.splitlines()[3:5])
    # Of 6 calls of a, 4 are in time, 1 is stale and 1 is open. Each share takes two words.
    assert a[5:] == ["6", "100.0", "%", "66.7", "%", "16.7", "%", "0.0", "%", "0.0", "%", "16.7",
                     "%", "0.20", "1"]  # fmt: skip
    assert b[5:] == ["2", "100.0", "%", "0.0", "%", "100.0", "%", "0.0", "%", "0.0", "%", "0.0",
                     "%", "2.50", "3"]  # fmt: skip


def test_rounds_without_a_version_are_told() -> None:
    told = describe(planned({"kind": "opportunistic"}, rounds=4, deadline_s=0.5))
    assert "warning: 2 of 4 rounds make no version" in told


def test_the_table_has_versions_and_staleness(tmp_path: Path) -> None:
    write_plan(tmp_path, planned())
    rows = list(csv.DictReader((tmp_path / "plan.csv").read_text().splitlines()))
    third = rows[5]
    assert (third["round"], third["group"], third["version"]) == ("3", "b", "3")
    assert [third[name] for name in ("counted", "stale", "staleness", "largest_staleness")] == [
        "1", "1", "2", "2",
    ]  # fmt: skip
    assert third["too_stale"] == "0"


def test_the_figure_shows_staleness_over_the_rounds() -> None:
    found = planned()
    axes = draw(found).axes[0]
    assert axes.get_title(loc="left") == "Staleness of the updates that count (mean)"
    level = axes.patches[1]
    assert isinstance(level, StepPatch)
    levels, edges, _ = level.get_data()
    np.testing.assert_array_equal(levels, [np.nan, np.nan, 2, np.nan, np.nan, np.nan, 3])
    np.testing.assert_allclose(60 * edges, [0, 1, 2, 2.5, 3, 4, 5, 5], rtol=1e-6)


def test_a_figure_of_work_that_takes_no_time_has_an_axis() -> None:
    values = {
        "name": "at-once",
        "task": "linear",
        "server": {"rounds": 3, "mode": K1},
        "groups": [{"name": "dev", "count": 2}],
    }
    found = plan(validate(Scenario, values, "test"), LEARNING)
    assert found.end_s == 0
    assert draw(found).axes == [], "nothing differs between groups or rounds"
