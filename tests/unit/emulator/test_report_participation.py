"""Participation has one definition, wherever a run states it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.unit.emulator.charts import findings

from muster.emulator.records.account import Account
from muster.emulator.records.summary import PARTICIPATION, describe, outline
from muster.emulator.report import participation
from muster.emulator.report.life_sections import planned
from muster.emulator.report.section import ReportSection
from muster.emulator.report.sections import SECTIONS, headline

if TYPE_CHECKING:
    from tests.unit.emulator.conftest import RunFolder

DOCS = Path(__file__).parents[3] / "docs"


def section_of(folder: Path) -> ReportSection:
    with Account(folder) as account:
        return participation.section(account, outline(account))


def titles(folder: Path) -> list[str]:
    return findings("participation", folder)


def busy(run: RunFolder) -> Path:
    """Two rounds of four enrolled devices, with 3 folded updates and 5 calls."""
    run.clients("a", "b", "c", "d")
    run.clients("never", enrolled=False)
    run.round({"a": "folded", "b": "folded"}, declined={"c": "offline"})
    run.round({"a": "folded", "b": "late"})
    return run.commit()


def test_participation_is_the_same_number_wherever_it_is_stated(run: RunFolder) -> None:
    folder = busy(run)
    run.plan([(1, "phones", 4, 3, 2.0), (2, "phones", 4, 2, 2.0)])
    with Account(folder) as account:
        summary = outline(account)
        facts = dict(headline(account, summary).facts)
        delivered = planned(account, summary)
    rate = "37.5 %"  # 3 of 4 × 2
    assert facts["participation"] == rate
    assert dict(section_of(folder).facts) == {
        "participation": f"{rate} of 4 enrolled devices × 2 rounds",
        "calls that led to a folded update": "60.0 %",
    }
    assert titles(folder)[0] == f"Participation {rate}: 1.5 of 4 devices per round"
    assert f"  participation  {rate} of 4 enrolled devices × 2 rounds" in describe(summary, folder)
    assert delivered is not None
    assert delivered.table is not None  # 4 of 8: an update that came late was delivered too
    assert list(delivered.table.columns[-2:]) == ["planned delivery", "measured delivery"]
    assert delivered.table.rows[0][-1] == "50.0 %"


def test_no_other_quantity_of_the_report_is_called_participation(run: RunFolder) -> None:
    folder = busy(run)
    run.plan([(1, "phones", 4, 3, 2.0), (2, "phones", 4, 2, 2.0)])
    with Account(folder) as account:
        summary = outline(account)
        found = [section for make in SECTIONS if (section := make(account, summary))]
        found.append(headline(account, summary))
    labels = [(label, value) for section in found for label, value in section.facts]
    stated = [value for label, value in labels if "participation" in label]
    assert [value.partition(" %")[0] for value in stated] == ["37.5", "37.5"]
    tables = [section.table for section in found if section.table]
    assert not [name for table in tables for name in table.columns if "participation" in name]


def test_the_report_and_the_page_on_results_state_the_definition(run: RunFolder) -> None:
    assert section_of(busy(run)).text == PARTICIPATION
    assert PARTICIPATION in (DOCS / "results.md").read_text(encoding="utf-8").replace("\n", " ")


def test_rounds_and_clients_that_are_all_alike_are_stated_and_not_drawn(run: RunFolder) -> None:
    run.clients("a", "b")
    for _ in range(3):
        run.round({"a": "folded", "b": "folded"})
    section = section_of(run.commit())
    assert section.figure == ""
    assert section.points == [
        "Each round called 2 devices; 2 accepted the call, and 2 had their update folded.",
        "All 2 enrolled devices contributed, 3 updates each.",
    ]


def test_only_the_panel_that_shows_a_difference_is_drawn(run: RunFolder) -> None:
    run.clients("a", "b")
    run.round({"a": "folded", "b": "late"})
    run.round({"a": "folded", "b": "late"})
    section = section_of(run.commit())
    assert section.figure == "participation"
    assert section.points[0] == (
        "Each round called 2 devices; 2 accepted the call, and 1 had their update folded."
    )
    assert titles(run.path) == ["1 of 2 enrolled devices never contributed"]


def test_a_run_without_rounds_has_no_participation(run: RunFolder) -> None:
    run.clients("a")
    section = section_of(run.commit())
    assert dict(section.facts)["participation"] == "– of 1 enrolled devices × 0 rounds"
    assert section.figure == ""
