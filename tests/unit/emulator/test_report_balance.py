"""Whom the model represents: small fleets whose means a person can check."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.unit.emulator.charts import findings

from muster.emulator.records.account import Account
from muster.emulator.records.summary import outline
from muster.emulator.report import balance, balance_charts
from muster.emulator.report.balance_section import represented
from muster.emulator.report.section import ReportSection

if TYPE_CHECKING:
    from tests.unit.emulator.conftest import RunFolder

pytestmark = pytest.mark.slow


def fleet(run: RunFolder, z: Mapping[str, Mapping[str, float]], enrolled: str = "abc") -> None:
    for client, columns in z.items():
        run.clients(client, enrolled=client in enrolled, z=json.dumps(columns))


def two_rounds(run: RunFolder, a: float = 1.0, b: float = 3.0) -> None:
    """a and b fold, with these weights; then a alone; c never does, and d is not enrolled."""
    sent = {"a": {"weight": a}, "b": {"weight": b}}
    loads = {"a": {"load": 0.8}, "b": {"load": 0.2}, "c": {"load": 0.2}}
    run.round({"a": "folded", "b": "folded"}, declined={"c": "busy"}, sent=sent, x=loads)
    run.round({"a": "folded"}, declined={"b": "busy", "c": "busy"}, sent=sent, x=loads)


def section_of(folder: Path) -> ReportSection:
    with Account(folder) as account:
        section = represented(account, outline(account))
    assert section is not None
    return section


def rows_of(folder: Path) -> list[list[str]]:
    table = section_of(folder).table
    assert table is not None
    return [list(row) for row in table.rows]


def titles_of(folder: Path) -> list[str]:
    return findings("balance", folder)


AGES = {"a": {"age": 3.0}, "b": {"age": 1.0}, "c": {"age": 1.0}, "d": {"age": 3.0}}


# --- the table -----------------------------------------------------------------------------------


def test_each_stage_has_a_mean_and_differences_are_in_deviations_of_the_target(
    run: RunFolder,
) -> None:
    fleet(run, AGES)
    two_rounds(run)
    # age: the population's mean is 2, its deviation 1. Updates are a, b, a: mean 7/3. Weighted: a
    # has 1/4 of round 1 and all of round 2, so 5/8 of the model: 5/8 · 3 + 3/8 · 1 = 2.25.
    # load: the enrolled were asked 6 times, mean 0.4, deviation √0.08; updates 0.6, weighted 0.575.
    assert rows_of(run.commit()) == [
        ["age", "Z", "2", "1.667", "2.333", "2.25", "+0.33", "+0.25", "participating and weighted"],
        ["load", "X", "–", "0.4", "0.6", "0.575", "+0.71", "+0.62", "participating and weighted"],
    ]


def test_a_word_has_a_row_for_each_level_and_its_shares(run: RunFolder) -> None:
    old, new = {"os=14": 1.0, "os=15": 0.0}, {"os=14": 0.0, "os=15": 1.0}
    fleet(run, {"a": old, "b": new, "c": old, "d": new})
    run.round({"a": "folded", "b": "folded", "c": "folded"})
    assert [row[:6] for row in rows_of(run.commit())] == [
        ["os=14", "Z", "50.0 %", "66.7 %", "66.7 %", "66.7 %"],
        ["os=15", "Z", "50.0 %", "33.3 %", "33.3 %", "33.3 %"],
    ]


def test_the_population_is_known_by_its_means_where_the_server_knows_no_more(
    run: RunFolder,
) -> None:
    fleet(run, {"a": {"age": 3.0}, "b": {"age": 1.0}})
    run.round({"a": "folded"}, declined={"b": "busy"})
    run.population(10, {"age": 1.5})
    section = section_of(run.commit())
    assert rows_of(run.path) == [
        ["age", "Z", "1.5", "2", "3", "3", "+1.50", "+1.50", "participating and weighted"]
    ]
    assert section.text.startswith("The mean of age is 3 in the updates, and 1.5 in the population")
    assert "The server knows only the means" in section.text


def test_a_covariate_without_a_target_has_no_difference(run: RunFolder) -> None:
    fleet(run, {"a": {"age": 3.0}, "b": {"age": 1.0}})
    run.round({"a": "folded"})
    run.population(10, {})
    assert rows_of(run.commit()) == [["age", "Z", "–", "2", "3", "3", "–", "–", ""]]
    assert titles_of(run.path) == ["age"]


def test_a_device_without_a_covariate_z_counts_as_0_in_it_and_an_answer_without_x_not_at_all(
    run: RunFolder,
) -> None:
    fleet(run, {"a": {"age": 3.0}, "b": {}})
    run.round({"a": "folded", "b": "folded"}, x={"a": {"load": 0.8}, "b": {"rest": 0.5}})
    assert [row[:6] for row in rows_of(run.commit())] == [
        ["age", "Z", "1.5", "1.5", "1.5", "1.5"],
        ["load", "X", "–", "0.8", "0.8", "0.8"],
        ["rest", "X", "–", "0.5", "0.5", "0.5"],
    ]


def test_only_folded_updates_count(run: RunFolder) -> None:
    fleet(run, AGES)
    run.round({"a": "late: deadline", "b": "folded"}, aborted={"c": "drop-out"})
    assert rows_of(run.commit())[0][4] == "1"


def test_a_round_that_weighed_nothing_has_no_part_in_the_weighted_mean(run: RunFolder) -> None:
    fleet(run, AGES)
    run.round({"a": "folded"}, sent={"a": {"weight": 0.0}})
    run.round({"b": "folded"})
    assert rows_of(run.commit())[0][4:6] == ["2", "1"]


def test_the_truth_that_devices_tell_an_oracle_is_no_covariate(run: RunFolder) -> None:
    run.clients("a")
    run.round({"a": "folded"}, x={"a": {"participation_propensity": 0.5}})
    with Account(run.commit()) as account:
        assert represented(account, outline(account)) is None


def test_a_run_without_covariates_says_nothing_of_them(run: RunFolder) -> None:
    run.clients("a")
    run.round({"a": "folded"})
    with Account(run.commit()) as account:
        assert represented(account, outline(account)) is None
    assert titles_of(run.path) == []


# --- the sentences -------------------------------------------------------------------------------


def test_it_says_who_took_part_more_often_why_and_what_weighting_does(run: RunFolder) -> None:
    fleet(run, AGES)
    run.round({"a": "folded", "b": "folded"}, sent={"b": {"weight": 500.0}})
    run.round({"a": "folded"})
    # Of 2 devices with high age came 2 updates, of 2 with low age 1.
    assert section_of(run.commit()).text == (
        "Devices with high age took part 2.0 times as often as those with low age. The "
        "standardised mean difference is +0.33, of which -0.33 came with enrollment and +0.67 "
        "with participation. Weighting improves it to +0.17. Where a line of a chart runs above "
        "the filled area, devices are over-represented. The numbers in its title are the "
        "standardised mean difference, participating → weighted."
    )


def test_weights_that_make_it_worse_are_told_so(run: RunFolder) -> None:
    fleet(run, AGES)
    two_rounds(run, a=9.0, b=1.0)
    text = section_of(run.commit()).text
    assert "Devices took part 4.0 times as often when load was high as when it was low." in text
    assert "The standardised mean difference is +0.71. Weighting worsens it to +1.31." in text
    assert "Of 2 means, 2 were over 0.1 without weights and 2 (age, load) with weights." in text


def test_updates_that_weigh_the_same_correct_nothing(run: RunFolder) -> None:
    fleet(run, AGES)
    two_rounds(run, a=1.0, b=1.0)
    assert "All updates of a round weigh the same" in section_of(run.commit()).text


@pytest.mark.parametrize(
    ("z", "sentence"),
    [
        (
            {"a": {"os=14": 1}, "b": {"os=14": 0}, "c": {"os=14": 0}, "d": {"os=14": 1}},
            "Devices with os=14 took part 2.0 times as often as others.",
        ),
        (
            {"a": {"os=14": 0}, "b": {"os=14": 1}, "c": {"os=14": 1}, "d": {"os=14": 0}},
            "Devices without os=14 took part 2.0 times as often as those with it.",
        ),
        (
            {"a": {"os=14": 1}, "b": {"os=14": 1}, "c": {"os=14": 0}, "d": {"os=14": 0}},
            "Only devices with os=14 took part.",
        ),
        (
            {"a": {"age": 1}, "b": {"age": 2}, "c": {"age": 4}, "d": {"age": 5}},
            "Only devices with low age took part.",
        ),
        (  # half of those above the median came, and half of those below
            {"a": {"age": 9}, "b": {"age": 1}, "c": {"age": 2}, "d": {"age": 3}},
            "Devices with high age took part 2.0 times as often as those with low age.",
        ),
        (
            {"a": {"age": 5}, "b": {"age": 5}, "c": {"age": 5}, "d": {"age": 5}},
            "No covariate can be compared, because no update was folded yet or no covariate",
        ),
    ],
    ids=["with", "without", "only words", "only numbers", "few values", "constant"],
)
def test_it_says_who_is_over_represented(
    run: RunFolder, z: Mapping[str, Mapping[str, float]], sentence: str
) -> None:
    fleet(run, z)
    two_rounds(run, a=1.0, b=1.0)
    run.ledger.execute("UPDATE answers SET x = NULL")
    assert section_of(run.commit()).text.startswith(sentence)


def test_where_the_halves_tell_another_story_it_gives_the_means(run: RunFolder) -> None:
    # a's 9 lifts the mean, and more updates come from below the median.
    fleet(run, {"a": {"age": 90}, "b": {"age": 1}, "c": {"age": 2}, "d": {"age": 3}})
    run.round(dict.fromkeys("abc", "folded"))
    text = section_of(run.commit()).text
    assert text.startswith("The mean of age is 31 in the updates, and 24 in the population.")


def test_a_balanced_run_is_told_so(run: RunFolder) -> None:
    fleet(run, {"a": {"age": 1}, "b": {"age": 3}, "c": {"age": 2}})
    run.round(dict.fromkeys("abc", "folded"))
    assert section_of(run.commit()).text.startswith(
        "The covariates show no over-represented devices: no mean of the updates is more than "
        "0.1 standard deviations off. All updates of a round weigh the same"
    )
    run.round(dict.fromkeys("abc", "folded"), sent={"a": {"weight": 900.0}})
    assert "With weights, 1 of 1 means are: age." in section_of(run.commit()).text


def test_before_the_first_update_there_is_nothing_to_compare(run: RunFolder) -> None:
    fleet(run, AGES)
    run.round({}, declined=dict.fromkeys("abc", "busy"))
    assert rows_of(run.commit()) == [["age", "Z", "2", "1.667", "–", "–", "–", "–", ""]]
    assert section_of(run.path).text.startswith("No covariate can be compared")
    assert titles_of(run.path) == ["age"]


# --- the figure ----------------------------------------------------------------------------------


def drawn_fleet(run: RunFolder, numbers: int, x: int, devices: int = 40) -> Path:
    """Devices with that many numbers Z and X, and a word; those with a high z0 take part."""
    chance = np.random.default_rng(7)
    z = chance.normal(size=(devices, numbers))
    names = [f"d{place}" for place in range(devices)]
    for place, name in enumerate(names):
        word = {f"os={level}": float(place % 3 == level) for level in range(3)} if x else {}
        columns = {f"z{column}": z[place, column] for column in range(numbers)}
        run.clients(name, z=json.dumps(columns | word))
    there = [name for place, name in enumerate(names) if z[place, 0] > 0]
    declined = dict.fromkeys(set(names) - set(there), "busy")
    seen = {n: {f"x{c}": chance.random() for c in range(x)} for n in names} if x else None
    for _ in range(2):
        run.round(dict.fromkeys(there, "folded"), declined=declined, x=seen)
    return run.commit()


@pytest.mark.parametrize(("numbers", "x", "panels"), [(1, 0, 1), (2, 1, 4), (6, 5, 12)])
def test_every_covariate_has_a_panel_that_says_how_far_it_is_off(
    run: RunFolder, numbers: int, x: int, panels: int
) -> None:
    titles = titles_of(drawn_fleet(run, numbers, x))
    assert len(titles) == panels
    name, *_, raw, weighted, _ = rows_of(run.path)[0]
    assert titles[0] == f"{name}: {raw} → {weighted}"
    assert float(raw) > 0.5


def test_of_many_covariates_those_most_out_of_balance_are_shown(run: RunFolder) -> None:
    folder = drawn_fleet(run, 10, 6)
    titles = titles_of(folder)
    assert len(titles) == balance_charts.MOST_CHARTS
    sizes = [abs(float(row[6])) for row in rows_of(folder) if not row[0].startswith("os=")]
    shown = [abs(float(title.split()[1])) for title in titles if not title.startswith("os=")]
    assert min(shown) >= sorted(sizes, reverse=True)[len(shown) - 1]
    note = section_of(folder).text
    assert note.endswith("The 12 of 17 covariates most out of balance are shown.")


def test_the_outlines_add_up_to_what_they_are_of() -> None:
    values = np.linspace(0.0, 1.0, 400)
    weights = {stage: np.ones(400) for stage in balance.STAGES}
    covariate = balance.Covariate("age", "Z", values, weights, 0.5)
    edges = balance_charts.bin_edges(values)
    kernel = balance_charts.smoothing_kernel(covariate, edges)
    outline = balance_charts.smoothed_shares(values, weights["enrolled"], edges, kernel)
    assert outline.sum() == pytest.approx(0.99, abs=0.01)  # without the tails
    assert outline[5] == pytest.approx(outline[100], rel=0.1)  # no dip at the end


@pytest.mark.parametrize(
    "values",
    [
        [0.0] * 995 + [1.0, 2.0, 3.0, 4.0, 5.0],
        [0.0] * 500 + [1.0] * 493 + [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7],
        [-1e6, *range(998), 1e6],
    ],
    ids=["almost constant", "at both ends", "far away"],
)
def test_odd_distributions_are_drawn(run: RunFolder, values: list[float]) -> None:
    for place, value in enumerate(values):
        run.clients(f"d{place}", z=json.dumps({"age": value}))
    run.round({f"d{place}": "folded" for place in range(0, 1000, 7)})
    assert len(titles_of(run.commit())) == 1


def test_names_and_words_are_only_text(run: RunFolder) -> None:
    fleet(run, {"a": {"os=$x_": 1, "os=": 0, "os=\x1b鬼": 0, "$\\frac{": 1}, "b": {"os=": 1}})
    run.round({"a": "folded"})
    assert [row[0] for row in rows_of(run.commit())] == ["os=$x_", "os=", "os=?鬼", "$\\frac{"]
    assert [title.split(":")[0] for title in titles_of(run.path)] == ["os=$x_", "$\\frac{"]
