"""The report of runs whose devices train parts of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.emulator.charts import findings

from muster.emulator.records.account import Account
from muster.emulator.records.summary import outline
from muster.emulator.report import coverage
from muster.emulator.report.weight_sections import estimates, weights

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.emulator.conftest import RunFolder

PART = {"mask_ratio": 0.25, "bytes_up": 100, "bytes_saved": 300}
WHOLE = {"mask_ratio": 1.0, "bytes_up": 400, "bytes_saved": 0}


def masked(run: RunFolder, rounds: int = 3) -> Path:
    """The last round covers half of the coordinates, the others cover all of them."""
    run.scenario('name = "parts"')
    run.clients("a", group="part")
    run.clients("b", group="whole")
    for number in range(1, rounds):
        run.round({"a": "folded", "b": "folded"}, sent={"a": PART, "b": WHOLE})
        run.estimate(coverage={"share": 1.0, "updates": 1.25, "largest_psi": 2.0 + number})
    run.round({"a": "folded"}, sent={"a": {**PART, "mask_ratio": 0.5}})
    run.estimate(coverage={"share": 0.5, "updates": 0.5, "largest_psi": 1.0})
    return run.commit()


def test_the_table_has_the_part_and_the_bytes_of_each_group(run: RunFolder) -> None:
    with Account(masked(run)) as account:
        found = coverage.section(account, outline(account))
        # The weights are all alike, and no other section repeats the coverage.
        assert weights(account, outline(account)) is None
        assert estimates(account, outline(account)) is None
    assert found is not None
    assert found.table is not None
    assert found.figure == "coverage"
    assert list(map(list, found.table.rows)) == [
        ["part", "3", "33.3 %", "100 B", "900 B"],
        ["whole", "2", "100.0 %", "400 B", "0 B"],
    ]


def test_the_figure_says_what_it_shows(run: RunFolder) -> None:
    assert findings("coverage", masked(run)) == [
        "On average, updates covered 83.3 % of the coordinates; at worst 50.0 %",
        "A coordinate was in 1 updates on average, and the largest ψ was 4",
    ]


def test_what_is_the_same_in_every_round_is_told_in_a_sentence(run: RunFolder) -> None:
    with Account(masked(run, rounds=1)) as account:
        found = coverage.section(account, outline(account))
    assert found is not None
    assert not found.figure
    assert "In every round, updates covered 50.0 % of the coordinates. A coord" in found.text


def test_a_run_without_masks_has_no_section_on_coverage(run: RunFolder) -> None:
    run.clients("a")
    run.round({"a": "folded"})
    with Account(run.commit()) as account:
        assert coverage.section(account, outline(account)) is None
