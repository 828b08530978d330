"""The report of versions in time: when they were made, and how long devices worked for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from muster.emulator.following.following import status_of
from muster.emulator.records.account import Account
from muster.emulator.records.summary import describe, outline
from muster.emulator.report import pace
from muster.emulator.report.figures import FIGURES
from muster.emulator.report.pace import (
    version_ends,
    working_course,
    working_shares,
    working_times,
)
from muster.emulator.report.timeline import Timeline

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.emulator.conftest import RunFolder

LOCKSTEP = """
name = "paced"
[clock]
kind = "rounds"
round_s = 60.0
starts_at_h = 6.0
[server.mode]
kind = "buffered"
"""


def paced(run: RunFolder) -> Path:
    """Three rounds of 100, 300 and 100 s; the second one makes no version.

    The slow device works from 0 to 350 s. The fast one works for 50 s in the first and in the third
    round. A third device is never called.
    """
    run.scenario(LOCKSTEP)
    run.clients("fast", group="fast")
    run.clients("slow", "idle", group="slow")
    run.clients("never", group="slow", enrolled=False)
    run.round({"fast": "folded"}, times=(0, 100), modelled={"fast": 50})
    run.add("answers", round=1, client="slow", decision="accept", modelled_s=350, at=run.time)
    run.evaluate(2.0)
    run.round({}, declined={"fast": "busy"}, times=(100, 400))
    run.round({"fast": "folded"}, times=(400, 500), modelled={"fast": 50})
    run.contribute("slow", "folded", call_round=1)
    run.evaluate(1.0)
    return run.commit()


def test_a_version_has_the_time_at_which_the_next_round_opens(run: RunFolder) -> None:
    with Account(paced(run)) as account:
        made = version_ends(account)
    assert made["version"].tolist() == [1, 2]
    assert made["scenario_s"].tolist() == [100, 500]
    assert made["wall_s"].tolist() == [2, 6]  # every round takes 2 s


def test_devices_work_for_the_modelled_time(run: RunFolder) -> None:
    with Account(paced(run)) as account:
        shares = working_shares(account)
    # 100 of 500 s; 350 s of one of two devices; 450 s of three.
    assert shares.to_dict() == pytest.approx({"fast": 0.2, "slow": 0.35, "all": 0.3})


def test_work_ends_with_the_run_and_with_the_next_call(run: RunFolder) -> None:
    run.scenario(LOCKSTEP)
    run.clients("a")
    run.round({"a": "late: deadline"}, times=(0, 60), modelled={"a": 90})
    run.round({"a": "folded"}, times=(60, 120), modelled={"a": 90})
    with Account(run.commit()) as account:
        work = working_times(account)
    assert list(zip(work["begin_s"], work["end_s"], strict=True)) == [(0, 60), (60, 120)]


def test_the_course_of_working_devices_is_a_mean_over_each_bin(run: RunFolder) -> None:
    with Account(paced(run)) as account:
        slow = account.clients.loc[account.clients["group"] == "slow", "client"]
        course = working_course(account, slow, np.array([0.0, 300.0, 400.0, 500.0]))
    assert course.tolist() == [1, 0.5, 0]


def test_on_the_wall_clock_a_device_works_until_its_update_arrives(run: RunFolder) -> None:
    run.scenario('[clock]\nkind = "scaled"\nscale = 10.0')
    run.clients("a", "b")
    run.ledger.execute("UPDATE run SET began_at = ?", (run.time,))
    run.round({"a": "folded"}, times=(0, 0), seconds=4.0, sent={"a": {"at": run.time + 3}})
    run.contribute("a", "duplicate", at=run.time + 9)
    run.ledger.execute("UPDATE rounds SET next_s = NULL")
    with Account(run.commit()) as account:
        assert version_ends(account)["scenario_s"].tolist() == [40]
        work = working_times(account)
        assert (work["begin_s"].tolist(), work["end_s"].tolist()) == ([0], [30])
        assert working_shares(account).to_dict() == pytest.approx({"phones": 0.375, "all": 0.375})


def test_the_section_has_the_idle_time_of_each_group(run: RunFolder) -> None:
    with Account(paced(run)) as account:
        found = pace.section(account, outline(account))
        titles = [chart.title for chart in FIGURES["pace"](account)]
    assert found is not None
    facts = dict(found.facts)
    assert (facts["versions"], facts["scenario time"], facts["idle"]) == (
        "2", "8 min 20 s", "70.0 %",
    )  # fmt: skip
    assert found.table is not None
    assert list(found.table.rows) == [["fast", "20.0 %", "80.0 %"], ["slow", "35.0 %", "65.0 %"]]
    assert titles == [
        "A version every 4 min 10 s of scenario time",
        "A version every 3 s on this machine",
        "Devices work 30.0 % of the time",
    ]


def test_without_modelled_durations_there_is_no_such_section(run: RunFolder) -> None:
    run.scenario(LOCKSTEP)
    run.clients("a")
    run.round({"a": "folded"}, times=(0, 60), modelled={"a": 0})
    with Account(run.commit()) as account:
        assert pace.section(account, outline(account)) is None
        assert FIGURES["pace"](account) == []


# --- rounds that are not equally long ------------------------------------------------------------


def test_rounds_of_different_lengths_are_drawn_at_their_times(run: RunFolder) -> None:
    with Account(paced(run)) as account:
        line = Timeline.of(account, 5)
        [chart] = FIGURES["calls"](account)
    rounds = pd.Series([1, 2, 3])
    # Three bins of 500/3 s; the rounds open at 0, 100 and 400 s.
    assert line.edges * 60 == pytest.approx([0, 500 / 3, 1000 / 3, 500])
    assert line.bins_of(rounds).tolist() == [0, 0, 2]
    assert line.places(rounds, 0.5) * 60 == pytest.approx([50, 250, 450])
    assert {label: place for place, label in chart.x.ticks}["06:05"] == pytest.approx(5)
    assert chart.y.label == "most frequent of 2 min 47 s"


def test_equally_long_rounds_are_drawn_at_their_numbers(run: RunFolder) -> None:
    run.scenario(LOCKSTEP)
    run.clients("a")
    for number in range(3):
        run.round({"a": "folded"}, times=(60 * number, 60 * number + 60))
    with Account(run.commit()) as account:
        line = Timeline.of(account, 5)
    assert line.edges.tolist() == [0.5, 1.5, 2.5, 3.5]
    assert line.places(pd.Series([1, 3]), 0.5).tolist() == [1, 3]


# --- versions instead of rounds ------------------------------------------------------------------


def test_what_counts_versions_says_versions(run: RunFolder) -> None:
    folder = paced(run)
    with Account(folder) as account:
        assert FIGURES["learning"](account)[0].x.label == "round"
    run.journal(
        {"event": "server_started", "run": "r", "round": 0, "version": 0, "population": 4,
         "rounds": 2, "counts": "versions", "bytes_up": 0, "bytes_down": 0},
        {"event": "round_committed", "round": 3, "version": 2, "outcome": "aggregated", "called": 1,
         "folded": 2, "seconds": 2.0, "bytes_up": 0, "bytes_down": 0, "at": 5.0},
        {"event": "ended", "status": "completed", "detail": "", "bytes_up": 0, "bytes_down": 0},
    )  # fmt: skip
    with Account(folder) as account:
        chart = FIGURES["learning"](account)[0]
        assert chart.x.label == "version"
        assert chart.layers[0].x[-1] == 2
        lines = describe(outline(account), folder).splitlines()
    took = "8 min 20 s of scenario time (6 s on this machine)"
    assert f"  versions       2 in {took}, and 1 round without a version" in lines
    found = status_of(folder)
    assert (found.counts, found.rounds, found.version, found.round) == ("versions", 2, 2, 3)
