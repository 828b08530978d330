"""The part of the report on weights and on what they rest on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.unit.emulator.charts import charts_of, findings

from muster.emulator.records.account import Account
from muster.emulator.records.summary import outline
from muster.emulator.report import weight_sections
from muster.emulator.report.section import ReportSection
from muster.emulator.report.shares import MOST_LINES

if TYPE_CHECKING:
    from tests.unit.emulator.conftest import RunFolder

pytestmark = pytest.mark.slow

ALL = (
    weight_sections.weights,
    weight_sections.propensities,
    weight_sections.overlap,
    weight_sections.calibration,
    weight_sections.shares,
    weight_sections.estimates,
)

Make = Callable[..., ReportSection | None]


def section_of(make: Make, folder: Path) -> ReportSection | None:
    with Account(folder) as account:
        return make(account, outline(account))


def rows_of(make: Make, folder: Path) -> list[list[str]]:
    section = section_of(make, folder)
    assert section is not None
    assert section.table is not None
    return [list(row) for row in section.table.rows]


def facts_of(make: Make, folder: Path) -> dict[str, str]:
    section = section_of(make, folder)
    assert section is not None
    return dict(section.facts)


def weighed(run: RunFolder, **weights: float) -> None:
    sent = {client: {"weight": weight} for client, weight in weights.items()}
    run.round(dict.fromkeys(weights, "folded"), sent=sent)


def warn(run: RunFolder, round: int, warning: str) -> None:
    run.journal({"event": "warned", "round": round, "by": "importance", "warning": warning})


def test_equal_weights_of_which_nothing_is_told_have_no_section(run: RunFolder) -> None:
    run.clients("a", "b")
    weighed(run, a=3.0, b=3.0)
    weighed(run, a=0.1)
    run.round({})
    assert [section_of(make, run.commit()) for make in ALL] == [None] * len(ALL)


def test_there_is_a_section_for_each_thing_that_is_told(run: RunFolder) -> None:
    run.clients("a", "b")
    weighed(run, a=1.0, b=3.0)
    found = [section.title for make in ALL if (section := section_of(make, run.commit()))]
    assert found == ["Weights"]
    run.estimate(
        participation={"(intercept)": 0.5},
        overlap_participation={"min": 0.1},
        calibration={"method": "entropy"},
        shares={"a": 0.5},
        floor=0.01,
        temperature=2.0,
    )
    found = [section.title for make in ALL if (section := section_of(make, run.commit()))]
    assert found == ["Weights", "Fitted propensities", "Overlap", "Calibration", "Shares",
                     "Further estimates"]  # fmt: skip


def test_weights_are_told_by_effective_size_and_the_largest(run: RunFolder) -> None:
    run.clients("a", "b", "c", "d")
    weighed(run, a=1.0, b=3.0)  # (1 + 3)² / (1 + 9) = 1.6 of 2
    weighed(run, a=1.0, b=1.0, c=1.0, d=5.0)  # 64 / 28 of 4; 5 over 2
    assert facts_of(weight_sections.weights, run.commit()) == {
        "effective size": "68.6 % of the updates",
        "largest weight": "2.5 × the mean",
    }
    assert findings("weights", run.path) == [
        "The effective size was 68.6 % of the folded updates (median of the rounds)",
        "Largest weight: 2.0 × the mean, 2.5 × at most",
        "Divided by the sum",
    ]


def test_a_normaliser_that_is_not_the_sum_is_told_as_a_range(run: RunFolder) -> None:
    run.clients("a", "b")
    weighed(run, a=1.0, b=3.0)
    weighed(run, a=2.0, b=3.0)
    run.ledger.execute("UPDATE rounds SET normaliser = 2 * weight_sum")
    assert findings("weights", run.commit())[2] == "Sum over normaliser: 0.5"
    run.ledger.execute("UPDATE rounds SET normaliser = weight_sum / 2 WHERE round = 2")
    assert findings("weights", run.commit())[2] == "Sum over normaliser: 0.5 to 2"


def test_weights_that_are_the_same_in_all_rounds_are_stated_and_not_drawn(run: RunFolder) -> None:
    run.clients("a", "b")
    weighed(run, a=1.0, b=3.0)
    weighed(run, a=1.0, b=3.0)
    section = section_of(weight_sections.weights, run.commit())
    assert section is not None
    assert section.figure == ""
    assert section.points == [
        "Every round that counts folded 2 updates, and their effective size was 1.6.",
        "The largest weight was 1.5 × the mean in every such round.",
        "The weights of every such round added up to 4, and the normaliser was 4.",
    ]
    run.ledger.execute("UPDATE rounds SET normaliser = 8.0 WHERE round = 2")
    assert findings("weights", run.commit()) == ["Sum over normaliser: 0.5 to 1"]


def test_no_line_of_weights_crosses_a_round_that_folded_nothing(run: RunFolder) -> None:
    run.clients("a", "b")
    weighed(run, a=1.0, b=3.0)
    run.round({})
    weighed(run, a=1.0, b=1.0)
    _, largest, sums = charts_of("weights", run.commit())
    for chart, expected in ((largest, [1.5, None, 1.0]), (sums, [4.0, None, 2.0])):
        assert {layer.kind for layer in chart.layers} == {"levels"}
        assert chart.layers[0].x == [0.5, 1.5, 2.5, 3.5]
        assert chart.layers[0].y == expected


def test_shares_stay_until_the_next_round_that_estimates_them(run: RunFolder) -> None:
    run.clients("a", "b")
    for _ in range(2):
        weighed(run, a=1.0, b=3.0)
        run.estimate(shares={"a": 0.5, "b": 0.25})
        run.round({})
    [chart] = charts_of("shares", run.commit())
    assert [(layer.kind, layer.x) for layer in chart.layers] == [("steps", [1, 3])] * 2


def test_warnings_are_told_once_also_where_nothing_was_folded(run: RunFolder) -> None:
    run.clients("a")
    run.round({})
    warn(run, 3, "a is rare")
    warn(run, 5, "b is rare")
    warn(run, 9, "a is rare")  # by the next incarnation
    assert rows_of(weight_sections.weights, run.commit()) == [
        ["3", "importance", "a is rare"],
        ["5", "importance", "b is rare"],
    ]
    assert facts_of(weight_sections.weights, run.path) == {}
    assert findings("weights", run.path) == []


def test_of_many_warnings_the_first_are_shown(run: RunFolder) -> None:
    for number in range(weight_sections.MOST_ROWS + 7):
        warn(run, number, f"device {number} is rare")
    section = section_of(weight_sections.weights, run.commit())
    assert section is not None
    assert section.table is not None
    assert len(section.table.rows) == weight_sections.MOST_ROWS
    assert section.table.note == "7 more are in journal.jsonl."


def test_coefficients_are_those_of_the_newest_round_side_by_side(run: RunFolder) -> None:
    run.round({})
    run.estimate(enrollment={"(intercept)": 1.0, "z1": 2.0})
    run.round({})
    run.estimate(participation={"(intercept)": -1.5, "z1": 0.25, "load": 4.0})
    assert rows_of(weight_sections.propensities, run.commit()) == [
        ["(intercept)", "1", "-1.5"],
        ["z1", "2", "0.25"],
        ["load", "–", "4"],
    ]


def test_what_is_known_of_old_counts_rounds_in_which_all_was_new(run: RunFolder) -> None:
    for stale in ({"share": 0.5, "mean_age_s": 90.0, "unknown": 2}, None):
        run.round({})
        run.estimate(participation={"load": 1.0}, **({"stale": stale} if stale else {}))
    assert facts_of(weight_sections.propensities, run.commit()) == {
        "rows with old X": "25.0 %",
        "mean age of old X": "1 min 30 s",
        "devices without any X, at most": "2",
    }


def test_overlap_has_quantiles_and_how_many_were_below_the_floor(run: RunFolder) -> None:
    run.round({})
    run.estimate(clipped_participation=7)
    run.round({})
    quantiles = {"min": 0.001, "p05": 0.1, "median": 0.5, "max": 0.9}
    run.estimate(overlap_participation=quantiles, clipped_participation=3, clipped_shares=9)
    assert rows_of(weight_sections.overlap, run.commit()) == [
        ["participation", "0.001", "0.1", "0.5", "0.9", "3 (at most 7)"]
    ]
    run.estimate(clipped={"enrollment": 0})
    assert rows_of(weight_sections.overlap, run.commit())[0] == [
        "enrollment", "–", "–", "–", "–", "0"
    ]  # fmt: skip


def test_a_calibration_tells_its_method_and_what_is_still_off(run: RunFolder) -> None:
    run.round({})
    run.estimate(
        calibration={
            "method": "soft",
            "residual": 0.02,
            "fallen_back": "quadratic: out of reach",
            "of": 12,
        },
        calibration_residuals={"z1 > 0": 0.02, "os=14": -1e-9},
    )
    run.round({})
    assert facts_of(weight_sections.calibration, run.commit()) == {
        "method": "soft", "fallen back from": "quadratic: out of reach",
        "norm of all residuals": "0.02", "devices": "12",
    }  # fmt: skip
    assert rows_of(weight_sections.calibration, run.path) == [
        ["z1 > 0", "0.02"], ["os=14", "-1e-09"]
    ]  # fmt: skip
    run.estimate(calibration={"method": "entropy", "fallen_back": ""})
    assert facts_of(weight_sections.calibration, run.commit()) == {"method": "entropy"}


def test_shares_say_how_many_are_below_the_floor(run: RunFolder) -> None:
    run.clients("a", "b", "c")
    for shares in ({"a": 1.0, "b": 0.0}, {"a": 0.6, "b": 0.005, "c": 0.395}):
        run.round({"a": "folded"})
        run.estimate(shares=shares, floor=0.01, clipped_shares=1)
    section = section_of(weight_sections.shares, run.commit())
    assert section is not None
    assert section.text.startswith("ĉ of 3 devices: 0.005 to 0.6, 1 below the floor in the newest")
    assert dict(section.facts) == {"updates below the floor in a round": "1 (at most 1)"}
    assert findings("shares", run.path) == ["ĉ of 3 devices: 0.005 to 0.6, 1 below the floor"]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (
            "",
            "mean, on average over the rounds so far. With M enrolled devices, its updates weigh",
        ),
        ("shares = 'exact'", "mean, here the true c, which the emulator computed"),
    ],
)
def test_shares_say_what_they_are(run: RunFolder, rule: str, said: str) -> None:
    text = f"[server.aggregator]\nkind = 'importance'\n{rule}\n"
    (run.path / "scenario.toml").write_text(text, encoding="utf-8")
    run.clients("a")
    run.round({"a": "folded"})
    run.estimate(shares={"a": 1.0})
    section = section_of(weight_sections.shares, run.commit())
    assert section is not None
    assert said in section.text


def test_few_shares_are_lines_by_group_and_many_are_bands(run: RunFolder) -> None:
    names = [f"d{place}" for place in range(MOST_LINES + 1)]
    run.clients(*names[:2], group="_tablets")
    run.clients(*names[2:])

    def drawn(count: int) -> tuple[int, list[str]]:
        run.ledger.execute("DELETE FROM estimates")
        for number in (1, 2, 3):
            run.add("rounds", round=number + run.rounds, **BARE)
            run.rounds += 1
            run.estimate(shares=dict.fromkeys(names[:count], 1 / number))
        [chart] = charts_of("shares", run.commit())
        labels = [layer.label for layer in chart.layers if layer.label]
        run.ledger.execute("DELETE FROM rounds")
        return sum(layer.kind == "steps" for layer in chart.layers), labels

    assert drawn(MOST_LINES) == (MOST_LINES, ["_tablets", "phones"])
    assert drawn(MOST_LINES + 1) == (1, ["lowest to highest", "10th to 90th percentile", "median"])


BARE = {
    "base_version": 0, "version": 0, "outcome": "empty", "called": 0, "accepted": 0, "folded": 0,
    "bytes_up": 0, "bytes_down": 0,
    "opened_at": 0.0, "closed_at": 0.0, "seconds": 0.0,
}  # fmt: skip


def test_shares_of_one_round_of_nobody_are_drawn(run: RunFolder) -> None:
    run.clients("a")
    run.round({})
    run.estimate(shares={"a": 0.0}, floor=0.5)
    assert findings("shares", run.commit()) == ["ĉ of 1 devices: 0 to 0, 1 below the floor"]


def test_without_shares_there_is_no_chart(run: RunFolder) -> None:
    run.round({})
    run.estimate(shares=0.5)
    assert section_of(weight_sections.shares, run.commit()) is None
    assert findings("shares", run.path) == []


def test_what_is_not_known_by_name_is_in_a_table_of_its_own(run: RunFolder) -> None:
    for temperature in (3.0, 1.0, 2.0):
        run.round({})
        run.estimate(temperature=temperature, mood="fine", by={"a": temperature, "b": "\x1bword"})
    assert rows_of(weight_sections.estimates, run.commit()) == [
        ["by", "a", "3", "2", "1", "3"],
        ["by", "b", "3", "?word", "–", "–"],
        ["mood", "", "3", "fine", "–", "–"],
        ["temperature", "", "3", "2", "1", "3"],
    ]


def test_many_unknown_estimates_are_cut_off(run: RunFolder) -> None:
    run.round({})
    run.estimate(by={f"d{place}": float(place) for place in range(weight_sections.MOST_ROWS + 2)})
    section = section_of(weight_sections.estimates, run.commit())
    assert section is not None
    assert section.table is not None
    assert len(section.table.rows) == weight_sections.MOST_ROWS
    assert section.table.note == "2 more are in ledger.sqlite, table estimates."


@pytest.mark.parametrize("name", ["weights", "shares"])
def test_a_thousand_rounds_are_drawn(run: RunFolder, name: str) -> None:
    run.clients(*(f"d{place}" for place in range(40)))
    chance = np.random.default_rng(7)
    for _ in range(1000):
        weighed(run, d0=1.0, d1=float(chance.lognormal()))
        run.estimate(shares={f"d{place}": float(chance.random()) for place in range(40)})
    assert findings(name, run.commit())
