"""What plans, reports and terminals show of faults."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from muster.common.config import validate
from muster.common.testing import ManualClock
from muster.emulator.faults.registry import BUILT_IN
from muster.emulator.following.progress import Lines
from muster.emulator.planning import plan
from muster.emulator.records.account import Account
from muster.emulator.records.summary import describe as describe_run
from muster.emulator.records.summary import outline
from muster.emulator.report import write_report
from muster.emulator.report.faults import section, shaded_rounds
from muster.emulator.report.figure_files import draw
from muster.emulator.report.figures import FIGURES
from muster.emulator.report.plan_tables import describe
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.whole_run import simulate_run

ROOT = Path(__file__).parents[3]

VALUES: dict[str, Any] = {
    "name": "shown",
    "seed": 2,
    "task": {"name": "linear", "dimension": 3},
    "server": {"rounds": 8},
    "groups": [{"name": "dev", "count": 4}],
    "faults": [
        {
            "name": "gone",
            "do": "offline",
            "target": {"count": 3},
            "when": {"round": 2, "every_rounds": 3},
            "for_rounds": 1,
        },
        {"do": "metered", "when": {"round": 4}, "for_rounds": 2},
        {"do": "nan", "target": {"count": 1}, "when": {"round": 3}},
    ],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("shown") / "run"
    assert simulate_run(validate(Scenario, VALUES, "shown"), made) == "completed"
    return made


def test_a_plan_shows_the_timeline_and_what_each_round_misses() -> None:
    text = describe(plan(validate(Scenario, VALUES, "shown")))
    assert "round 2, and 2 times later" in text
    assert "happens" not in text  # the others follow from the first
    assert "round 4 to 5" in text
    assert "round 3 to the end" in text
    assert "Updates in time, without and with faults (9 fewer in all)" in text
    for round in (2, 5, 8):
        assert f"round {round}: 4 → 1" in text


def test_a_plan_shows_the_first_occurrences_of_a_fault_at_random() -> None:
    when = {"mean_up_s": 120.0, "mean_down_s": 60.0}
    gone = {"name": "gone", "do": "offline", "target": {"names": ["dev-0001"]}, "when": when}
    planned = plan(validate(Scenario, {**VALUES, "faults": [gone], "server": {"rounds": 60}}, "x"))
    [fault] = planned.timeline.faults
    spans = [(each.first_round, (each.end_round or 0) - 1) for each in fault.occurrences]
    assert len(spans) > 4
    told = [f"round {a}{'' if a == b else f' to {b}'}: dev-0001" for a, b in spans[:4]]
    line = f"gone happens {len(spans)} times: {'; '.join(told)}; and {len(spans) - 4} more"
    assert line in describe(planned)


def test_a_plan_names_the_targets_that_a_fault_strikes_if_it_occurs_once() -> None:
    churn = {"do": "churn", "share_percent": 25, "when": {"round": 3}, "for_s": 0.5}
    planned = plan(validate(Scenario, {**VALUES, "faults": [churn]}, "once"))
    [fault] = planned.timeline.faults
    [struck] = fault.occurrences[0].targets
    [line] = [line for line in describe(planned).splitlines() if "churn-1" in line]
    assert struck in line
    assert [name for name in fault.targets if name in line] == [struck]


def test_a_plan_without_faults_says_nothing_of_them() -> None:
    found = plan(validate(Scenario, {**VALUES, "faults": []}, "shown"))
    assert found.undisturbed is None
    assert "Faults" not in describe(found)


def test_the_report_has_a_row_for_every_fault(folder: Path) -> None:
    with Account(folder) as account:
        found = section(account, outline(account))
    assert found is not None
    assert found.table is not None
    rows = {row[0]: list(row[1:]) for row in found.table.rows}
    assert rows["gone"] == [
        "offline", "3 × decline (offline)", "round 2", "round 3", "3", "3", "3", "3", "2", "2",
    ]  # fmt: skip
    assert rows["nan-1"][2:4] == ["round 3", "to the end"]
    assert rows["metered-1"][1] == "never observed"
    assert found.points == ["metered-1 was never observed, so this run proves nothing about it."]


def test_figures_over_rounds_shade_the_rounds_of_faults(folder: Path) -> None:
    with Account(folder) as account:
        # Round 2 alone; from round 3 to the end, NaN: everything else lies within.
        assert shaded_rounds(account) == [(2, 8)]
        charts = FIGURES["learning"](account)
    assert all(chart.over_rounds for chart in charts)
    for axes in draw(charts, [(2, 2), (5, 6)]).axes:
        spans = [(p.get_x(), p.get_width()) for p in axes.patches]  # type: ignore[attr-defined]
        assert spans == [(1.5, 1.0), (4.5, 2.0)]


def test_the_page_of_the_report_names_vacuous_faults(folder: Path) -> None:
    page = write_report(folder).read_text()
    assert "metered-1 was never observed" in page
    assert "gone" in page


def test_the_terminal_names_vacuous_faults(folder: Path) -> None:
    summary = json.loads((folder / "summary.json").read_text())
    text = describe_run(summary, folder)
    assert (
        "2 of 3 observed, 1 of 2 verified to be over; vacuous, because never observed: metered-1"
        in text
    )


def test_progress_tells_the_first_time_of_a_fault_alone() -> None:
    stream = io.StringIO()
    lines = Lines(stream, ManualClock(), title="run", quiet=True)
    fault = {"fault": "gone", "targets": ["dev-0001"], "round": 2, "scenario_s": 60.0}
    for number in (1, 2):
        lines.show({"event": "fault_applied", "number": number, **fault})
        lines.show({"event": "fault_observed", "number": number, "seen": "1 × x", **fault})
        lines.show({"event": "fault_healed", "number": number, **fault})
        lines.show({"event": "fault_verified", "number": number, **fault})
    fault["fault"] = "stays"
    lines.show({"event": "fault_healed", "number": 1, "with_run": True, **fault})
    assert stream.getvalue().splitlines() == [
        "run: fault gone: applied to dev-0001",
        "run: fault gone: observed: 1 × x",
        "run: fault gone: healed",
        "run: fault gone: verified to be over",
        "run: fault stays: lasted to the end",
    ]


def test_the_page_about_faults_has_every_kind() -> None:
    page = (ROOT / "docs/faults.md").read_text()
    rows = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}
    assert BUILT_IN.keys() <= rows


@pytest.mark.parametrize("path", sorted((ROOT / "examples/faults").glob("*.toml")), ids=str)
def test_every_example_of_faults_can_be_planned_or_read(path: Path) -> None:
    from muster.emulator.scenario.reading import read_scenario

    assert plan(read_scenario(path)).timeline
