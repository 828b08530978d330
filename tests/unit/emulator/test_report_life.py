"""The part of the report on devices' lives: small fleets whose numbers a person can check."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from tests.unit.emulator.charts import charts_of, findings

from muster.emulator.records.account import Account
from muster.emulator.records.summary import outline
from muster.emulator.report import call_map, life_sections, sections, write_report
from muster.emulator.report.hours import Hours
from muster.emulator.report.section import ReportSection
from muster.emulator.report.timeline import Timeline

if TYPE_CHECKING:
    from tests.unit.emulator.conftest import RunFolder

LIFE = (life_sections.calls, life_sections.reasons, life_sections.batteries, life_sections.planned)
LOCKSTEP = 'name = "day"\n[clock]\nkind = "rounds"\nround_s = 3600.0\nstarts_at_h = 22.0\n'


def live(run: RunFolder) -> Path:
    """Two rounds of three phones, which have batteries, and a gateway, which is always on."""
    run.scenario(LOCKSTEP)
    run.clients("a", "b", "c")
    run.clients("d", group="gateways")
    run.clients("never", enrolled=False)
    run.round(
        {"d": "folded"},
        declined={"a": "battery", "b": "offline"},
        aborted={"c": "drop-out"},
        batteries={"a": 0.2, "b": 0.5, "c": 0.8, "d": 1.0},
    )
    run.round(
        {"a": "folded", "d": "late: deadline"},
        declined={"b": "battery"},
        batteries={"a": 0.4, "b": 0.6, "d": 1.0},
    )
    return run.commit()


def section_of(make: Callable[..., ReportSection | None], folder: Path) -> ReportSection | None:
    with Account(folder) as account:
        return make(account, outline(account))


def rows_of(make: Callable[..., ReportSection | None], folder: Path) -> list[list[str]]:
    section = section_of(make, folder)
    assert section is not None
    assert section.table is not None
    return [list(row) for row in section.table.rows]


# --- sections ------------------------------------------------------------------------------------


def test_a_run_without_lives_says_nothing_of_them(run: RunFolder) -> None:
    run.clients("a", "b")
    run.round({"a": "folded"}, declined={"b": "busy"})
    run.round({"a": "folded"}, absent=["b"])  # it was killed, on the wall clock
    assert [section_of(make, run.commit()) for make in LIFE] == [None] * 4


def test_a_run_with_lives_has_a_section_for_each_thing_there_is(run: RunFolder) -> None:
    folder = live(run)
    titles = [section.title for make in LIFE if (section := section_of(make, folder))]
    assert titles == ["Calls", "Reasons", "Batteries"]
    run.plan([(1, "phones", 3, 3, 0.0), (1, "gateways", 1, 1, 1.0)])
    assert section_of(life_sections.planned, folder) is not None


def test_batteries_that_are_always_full_are_not_worth_a_figure(run: RunFolder) -> None:
    run.clients("a")
    run.round({"a": "folded"}, batteries={"a": 1.0})
    assert section_of(life_sections.batteries, run.commit()) is None
    assert section_of(life_sections.calls, run.path) is not None


def test_a_group_whose_calls_all_ended_alike_is_stated_and_not_drawn(run: RunFolder) -> None:
    run.clients("a", "b")
    run.clients("d", group="gateways")
    run.round({"a": "folded", "d": "folded"}, declined={"b": "battery"}, batteries={"a": 0.5})
    section = section_of(life_sections.reasons, run.commit())
    assert section is not None
    assert section.points == ["gateways: all calls folded."]
    assert findings("reasons", run.path) == [
        "phones: 50.0 % of calls folded; the most frequent reason: battery, 50.0 %"
    ]


def test_calls_that_all_ended_alike_are_stated_and_not_drawn(run: RunFolder) -> None:
    run.clients("a", "b")
    for _ in range(2):
        run.round({"a": "folded", "b": "folded"}, batteries={"a": 0.5, "b": 0.5})
    found = [section_of(make, run.commit()) for make in LIFE[:3]]
    assert [section and section.figure for section in found] == ["", "", ""]
    calls, reasons, batteries = found
    assert calls is not None
    assert calls.text == "All calls: folded."
    assert reasons is not None
    assert reasons.points == ["phones: all calls folded."]
    assert batteries is not None
    assert batteries.points == ["phones: a charge of 50.0 % in every answer."]


def test_shares_that_count_absences_are_not_called_shares_of_calls(run: RunFolder) -> None:
    run.clients("a", "b")
    run.round({"a": "folded"}, absent=["b"], batteries={"a": 0.5})
    assert findings("calls", run.commit()) == [
        "Calls and absences: 50.0 % folded, 50.0 % not reached"
    ]
    assert findings("reasons", run.path) == [
        "phones: 50.0 % of calls and absences folded; the most frequent reason: absent, 50.0 %"
    ]


def test_a_plan_says_nothing_before_a_round_was_committed(run: RunFolder) -> None:
    run.plan([(1, "phones", 1, 1, 1.0)])
    assert section_of(life_sections.planned, run.commit()) is None


def test_the_facts_are_shares_of_calls(run: RunFolder) -> None:
    section = section_of(life_sections.calls, live(run))
    assert section is not None
    assert dict(section.facts) == {
        "enrolled": "4 of 5",
        "accepted calls": "57.1 %",  # 4 of 7: d, c, then a, d
        "most frequent reasons": "battery 28.6 %, offline 14.3 %, drop-out 14.3 %",
    }


def test_calls_that_nobody_answered_are_mentioned(run: RunFolder) -> None:
    run.clients("a", "b", "c")
    run.round({"a": "folded"}, absent=["b"], unanswered=2, batteries={"a": 0.5})
    section = section_of(life_sections.calls, run.commit())
    assert section is not None
    assert "2 calls got no answer" in section.text
    assert dict(section.facts)["accepted calls"] == "33.3 %"


def test_a_call_is_lost_once(run: RunFolder) -> None:
    run.clients("a", "b", "c", "d", "e")
    run.round(
        {"a": "folded", "b": "late: deadline"},
        declined={"c": "offline"},
        aborted={"d": "drop-out"},
        absent=["e"],
    )
    run.contribute("a", "duplicate")
    run.contribute("b", "duplicate")
    assert rows_of(sections.losses, run.commit()) == [
        ["late", "deadline", "1", "25.0 %"],
        ["gave up", "drop-out", "1", "25.0 %"],
        ["declined", "offline", "1", "25.0 %"],
    ]


def test_an_answer_after_the_commit_is_late_and_not_missing(run: RunFolder) -> None:
    run.clients("a", "b")
    run.round({"a": "folded"}, unanswered=1)
    run.contribute("b", "late: deadline")
    assert rows_of(sections.losses, run.commit()) == [["late", "deadline", "1", "50.0 %"]]


def test_the_plan_is_held_against_what_was_accepted_and_not_given_up(run: RunFolder) -> None:
    folder = live(run)
    run.plan(
        [
            (1, "phones", 3, 3, 1.0),
            (1, "gateways", 1, 1, 1.0),
            (2, "phones", 3, 2, 0.5),
            (2, "gateways", 1, 1, 1.0),
            (3, "phones", 3, 3, 3.0),
            (3, "gateways", 1, 1, 1.0),  # not reached
        ]
    )
    assert rows_of(life_sections.planned, folder) == [
        ["phones", "5", "1.5", "1", "-0.5", "25.0 %", "16.7 %"],
        ["gateways", "2", "2", "2", "+0", "100.0 %", "100.0 %"],
    ]
    assert findings("planned", folder) == ["phones: 1 update, 0.5 fewer than the 1.5 planned"]
    section = section_of(life_sections.planned, folder)
    assert section is not None
    assert section.points == ["gateways, in every round: 1 update, as planned."]


def test_a_group_that_was_never_called_is_in_the_plan_all_the_same(run: RunFolder) -> None:
    run.clients("a")
    run.clients("b", group="NA")  # no missing value
    run.round({"a": "folded"})
    run.plan([(1, "phones", 1, 1, 1.0), (1, "NA", 0, 0, 0.0)])
    assert rows_of(life_sections.planned, run.commit()) == [
        ["phones", "1", "1", "1", "+0", "100.0 %", "100.0 %"],
        ["NA", "0", "0", "0", "+0", "–", "–"],
    ]


# --- figures -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_figures_of_a_life_are_written_and_say_what_they_show(run: RunFolder) -> None:
    folder = live(run)
    run.plan([(1, "phones", 3, 3, 0.0), (2, "phones", 3, 3, 1.0), (1, "gateways", 1, 1, 1.0)])
    page = write_report(folder, "png").read_text(encoding="utf-8")
    for name in ("calls", "reasons", "batteries", "planned"):
        assert (folder / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert all(finding in page for finding in findings(name, folder))
    assert findings("calls", folder) == [
        "Calls: 28.6 % folded, 28.6 % gave up, late or lost, 28.6 % declined, 14.3 % not reached"
    ]
    assert findings("reasons", folder) == [
        "phones: 20.0 % of calls folded; the most frequent reason: battery, 40.0 %",
        "gateways: 50.0 % of calls folded; the most frequent reason: deadline, 50.0 %",
    ]
    assert findings("batteries", folder) == ["phones: median charge between 50.0 % and 60.0 %"]


@pytest.mark.parametrize("name", ["calls", "reasons", "batteries", "planned"])
def test_a_run_without_calls_is_told_so(run: RunFolder, name: str) -> None:
    run.round({})
    assert charts_of(name, run.commit()) == []


def test_a_cell_shows_what_happened_most_often_in_it() -> None:
    rows, columns, kinds = np.array([0, 0, 0, 1]), np.array([0, 0, 0, 1]), np.array([2, 3, 2, 0])
    assert call_map.call_cells(rows, columns, kinds, (2, 2)).tolist() == [[2, -1], [-1, 0]]


def test_rows_are_of_one_group_each_and_only_for_those_who_could_be_called() -> None:
    clients = pd.DataFrame(
        {"group": ["a"] * 400 + ["b"] * 3, "enrolled": [1] * 398 + [0, 0] + [1, 0, 1]}
    )
    rows, tops, members = call_map.client_rows(clients, np.array([401]))
    assert members == 2  # 401 clients do not fit into 300 rows
    assert tops.tolist() == [0, 199, 201]
    assert rows[[0, 1, 2, 397, 398, 399]].tolist() == [0, 0, 1, 198, -1, -1]
    assert rows[400:].tolist() == [199, 199, 200]


@pytest.mark.slow
def test_of_many_groups_the_most_called_are_shown_and_the_others_counted(run: RunFolder) -> None:
    names = [f"d{number}" for number in range(10)]
    for name in names:
        run.clients(name, group=f"group-{name}")
    run.clients("nobody", group="away", enrolled=False)
    everybody = dict.fromkeys(names, "folded")
    run.round(everybody, batteries=dict.fromkeys(names, 0.5))
    run.round(dict.fromkeys(names, "late"))
    run.round(dict.fromkeys(names[1:], "folded"))
    assert [title.split(":")[0] for title in findings("reasons", run.commit())] == [
        f"group-d{number}" for number in range(1, 9)
    ]
    with Account(run.path) as account:
        section = life_sections.reasons(account, outline(account))
    assert section is not None
    assert section.points[-1] == "8 of 10 groups are shown."
    [chart] = charts_of("calls", run.path)
    assert [label for _, label in chart.y.ticks] == [f"group-{name}" for name in names]


def test_the_axis_of_a_lockstep_run_has_the_hours_of_the_day(run: RunFolder) -> None:
    live(run)
    [chart] = charts_of("calls", run.path)
    labels = {label: place for place, label in chart.x.ticks}
    assert labels["22:00"] == 0.5  # round 1 opens
    assert labels["23:00"] == 1.5
    assert labels["00:00"] == 2.5  # round 2 ends


def test_the_axis_of_other_clocks_counts_rounds(run: RunFolder) -> None:
    live(run)
    run.scenario('[clock]\nkind = "wall"\nround_s = 3600.0\n')
    [chart] = charts_of("calls", run.path)
    assert (chart.x.label, chart.x.ticks) == ("round", ())


def test_the_bins_of_a_timeline_cover_its_rounds() -> None:
    line = Timeline(first=1, last=10, size=4, round_min=None, hours=Hours.of(0.0, []))
    assert line.bins == 3
    assert line.edges.tolist() == [0.5, 4.5, 8.5, 10.5]
    assert line.bins_of(pd.Series([1, 4, 5, 10])).tolist() == [0, 0, 1, 2]
