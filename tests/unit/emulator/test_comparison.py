"""What a comparison plans, and the statistics of what came of it."""

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from muster.common.errors import ConfigError
from muster.emulator.comparison.figure import draw
from muster.emulator.comparison.outcome import (
    MEASURES,
    differences_of,
    means_of,
    read_runs,
)
from muster.emulator.comparison.plan import ComparisonPlan, make_plan
from muster.emulator.comparison.tables import ENDS, TARGETS, cell
from muster.emulator.comparison.variants import folder_names, labels_of, parse_vary
from muster.emulator.records.intervals import interval
from muster.emulator.records.summary import write_summary
from muster.server.rounds.selection import UniformSelection

PLAIN = """
name = "plain"
seed = 4
[task]
name = "linear"
[server]
rounds = 3
[[groups]]
name = "a"
count = 2
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "plain.toml"
    path.write_text(PLAIN)
    return path


# --- what is asked for ---------------------------------------------------------------------------


def test_values_are_toml_or_plain_text() -> None:
    assert parse_vary(["server.rounds=5, 10"]) == {"server.rounds": [5, 10]}
    assert parse_vary(["server.aggregator.kind=fedavg,'agnostic'"]) == {
        "server.aggregator.kind": ["fedavg", "agnostic"]
    }


def test_commas_inside_brackets_braces_and_quotes_part_no_values() -> None:
    asked = ['server.selection={kind="uniform",k=5},{kind="all"}', 'task.hidden=[1,[2,3]],[4]',
             'name="a,b",\'c]\',d']  # fmt: skip
    assert parse_vary(asked) == {
        "server.selection": [{"kind": "uniform", "k": 5}, {"kind": "all"}],
        "task.hidden": [[1, [2, 3]], [4]],
        "name": ["a,b", "c]", "d"],
    }


@pytest.mark.parametrize(
    "option", ["server.rounds", "=1,2", "server.rounds=", "server.rounds=1,,2"]
)
def test_an_option_without_key_or_values_is_refused(option: str) -> None:
    with pytest.raises(ConfigError, match="expected key=value,value"):
        parse_vary([option])


def test_a_key_is_varied_once() -> None:
    with pytest.raises(ConfigError, match="twice; give all its values at once"):
        parse_vary(["seed=1", "seed=2"])


def test_labels_are_short_as_long_as_they_are_clear() -> None:
    selection = {"kind": "uniform", "k": 5}
    assert labels_of([{"server.goal": 8, "server.selection": selection}]) == [
        "goal=8 selection=uniform(k=5)"
    ]
    assert labels_of([{"groups[0].count": 8, "groups[1].count": True}]) == [
        "groups[0].count=8 groups[1].count=true"
    ]
    assert labels_of([{"groups[0].count": None}]) == ["count=none"]
    assert labels_of([{"server.aggregator.kind": "fedavg"}]) == ["aggregator=fedavg"]


def test_folders_are_plain_names_that_differ() -> None:
    assert folder_names(["goal=8 selection=uniform(k=5)", "a=x/../y"]) == [
        "goal=8-selection=uniform-k=5",
        "a=x-..-y",
    ]
    assert len(set(folder_names(["a=(b)", "a=[b]", "A=b"]))) == 3


# --- the plan ------------------------------------------------------------------------------------


def test_every_combination_runs_with_every_seed_and_pairs_are_neighbours(scenario: Path) -> None:
    plan = make_plan(scenario, {"server.rounds": [1, 2], "groups[0].count": [3, 4]}, seeds=2)
    ran = [
        (run.seed, run.scenario.seed, run.scenario.server.rounds, run.scenario.devices)
        for run in plan.runs
    ]
    assert ran == [
        (seed, seed, rounds, count) for seed in (4, 5) for rounds in (1, 2) for count in (3, 4)
    ]
    assert plan.runs[1].title == "rounds=1 count=4 seed=4"
    assert plan.runs[1].folder == "rounds=1-count=4-seed4"
    assert len({run.folder for run in plan.runs}) == 8


def test_a_key_inside_a_varied_table_touches_only_its_variant(scenario: Path) -> None:
    table = {"kind": "uniform", "k": 1}
    plan = make_plan(scenario, {"server.selection": [table], "server.selection.k": [1, 2]})
    rules = [run.scenario.server.selection for run in plan.runs]
    assert [rule.k for rule in rules if isinstance(rule, UniformSelection)] == [1, 2]
    assert table == {"kind": "uniform", "k": 1}


def test_the_mistakes_of_all_variants_are_told_at_once(scenario: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        make_plan(scenario, {"server.rounds": [0, 3, "many"], "server.goal": [2, 9]})
    told = str(refused.value)
    assert told.startswith("5 of 6 variants cannot be run\n")
    assert "rounds=0 goal=9: " in told
    assert "rounds=3 goal=9: " in told
    assert "server.goal: 9 updates, but the population has only 2 devices" in told
    assert "found 'many'" in told


def test_what_is_wrong_with_all_variants_is_told_once(scenario: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        make_plan(scenario, {"server.rounds": [1, 2]}, settings=["server.ronds=3"])
    assert str(refused.value).count("server.ronds: unknown key") == 1
    assert "variants" not in str(refused.value)


def test_data_that_is_missing_is_told_before_anything_starts(scenario: Path) -> None:
    with pytest.raises(ConfigError, match=r"1 of 2 variants cannot be run\ntask=mnist: task\.data"):
        make_plan(scenario, {"task.name": ["linear", "mnist"]})


@pytest.mark.parametrize(
    ("vary", "seeds", "said"),
    [
        ({}, 1, "expected something to vary"),
        ({"server.rounds": []}, 1, "expected values, found none"),
        ({"server.rounds": [2, 2]}, 1, "2 comes twice"),
        ({"seed": [2, 3]}, 1, "use --seeds K"),
        ({"server.rounds": [2, 3]}, 0, "expected at least 1, found 0"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(
    scenario: Path, vary: dict[str, Any], seeds: int, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        make_plan(scenario, vary, seeds)


def test_a_plan_comes_back_as_it_was_written(scenario: Path) -> None:
    plan = make_plan(scenario, {"server.deadline_s": [None, 2.0]}, seeds=2)
    assert ComparisonPlan.from_json(plan.to_json(), "plan.json") == plan


def test_a_plan_with_own_code_can_be_read_by_another_process(scenario: Path) -> None:
    (scenario.parent / "rules_of_plan.py").write_text(
        "from muster.server.aggregators.fedavg import FedAvg\nclass Mine(FedAvg): ...\n"
    )
    plan = make_plan(scenario, {"server.aggregator.kind": ["rules_of_plan:Mine"]}, seeds=1)
    written = scenario.with_name("plan.json")
    written.write_text(plan.to_json())
    read = (
        "import sys; from muster.emulator.comparison.plan import ComparisonPlan; "
        "ComparisonPlan.from_json(open(sys.argv[1]).read(), 'plan.json')"
    )
    subprocess.run([sys.executable, "-P", "-c", read, written], check=True)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"name": "a", "runs": [{"scenario": {}}]}'])
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"plan\.json: "):
        ComparisonPlan.from_json(text, "plan.json")


# --- statistics ----------------------------------------------------------------------------------


def test_the_interval_is_students() -> None:
    # mean 2, standard deviation 1, t(0.975, 2 degrees of freedom) = 4.302653
    found = interval([1, 2, 3])
    assert (found.n, found.mean) == (3, 2)
    assert found.half == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)


def test_what_was_not_measured_does_not_count() -> None:
    found = interval([1.0, math.nan, 3.0, math.inf])
    assert (found.n, found.mean) == (2, 2)
    one, none = interval([5.0]), interval([math.nan])
    assert (one.n, one.mean) == (1, 5)
    assert math.isnan(one.half)
    assert none.n == 0
    assert math.isnan(none.mean)


def runs_of(*rows: tuple[str, int, str, float | None]) -> pd.DataFrame:
    """Runs that measured nothing but accuracy."""
    table = [
        {"variant": variant, "seed": seed, "status": status, "target_reached": None}
        | dict.fromkeys(MEASURES)
        | {"accuracy": accuracy}
        for variant, seed, status, accuracy in rows
    ]
    return pd.DataFrame(table).astype(dict.fromkeys(MEASURES, "float64"))


def test_differences_are_taken_between_runs_of_one_seed() -> None:
    runs = runs_of(("a", 1, "completed", 0.5), ("b", 1, "completed", 0.6),
                   ("a", 2, "completed", 0.9), ("b", 2, "completed", 1.0))  # fmt: skip
    (row,) = differences_of(runs).to_dict("records")
    assert (row["variant"], row["measure"], row["n"]) == ("b", "accuracy", 2)
    # The seeds differ by 0.4, the variants by 0.1 whatever the seed: the interval is a point.
    assert [row["low"], row["mean"], row["high"]] == pytest.approx([0.1, 0.1, 0.1])
    assert means_of(runs)["mean"].tolist() == pytest.approx([0.7, 0.8])


def test_other_metrics_of_the_task_are_compared() -> None:
    runs = runs_of(("a", 1, "completed", None), ("b", 1, "completed", None))
    runs = runs.assign(metric_f1=[0.5, 0.75])
    (row,) = differences_of(runs).to_dict("records")
    assert (row["measure"], row["mean"]) == ("metric_f1", 0.25)


def test_a_run_that_failed_counts_neither_in_means_nor_in_differences() -> None:
    runs = runs_of(("a", 1, "completed", 0.5), ("b", 1, "failed", 0.1),
                   ("a", 2, "diverged", 0.7), ("b", 2, "completed", 1.0))  # fmt: skip
    assert means_of(runs)["n"].tolist() == [2, 1]
    (row,) = differences_of(runs).to_dict("records")
    assert (row["n"], row["mean"]) == (1, pytest.approx(0.3))


def test_a_comparison_of_which_nothing_ended_has_empty_estimates() -> None:
    runs = runs_of(("a", 1, "failed", 0.5), ("b", 1, "not run", None))
    assert means_of(runs)["n"].tolist() == [0, 0]
    assert differences_of(runs)["n"].tolist() == [0]


def test_variants_are_compared_by_scenario_time_and_not_by_seconds_of_this_machine(
    scenario: Path, tmp_path: Path
) -> None:
    plan = make_plan(scenario, {"server.rounds": [2, 3]})
    for planned, seconds, scenario_s in zip(plan.runs, (9.0, 4.0), (120.0, 180.0), strict=True):
        target = {"reached": True, "rounds": 1, "scenario_s": scenario_s / 2, "seconds": seconds}
        summary = {"status": "completed", "seconds": seconds, "scenario_s": scenario_s}
        (tmp_path / planned.folder).mkdir()
        write_summary(tmp_path / planned.folder, summary | {"target": target})
    found = differences_of(read_runs(tmp_path, plan, {})).set_index("measure")["mean"]
    assert found["scenario_s"] == 60.0
    assert found["scenario_s_to_target"] == 30.0
    assert not [measure for measure in found.index if measure.startswith("seconds")]


# --- what is shown -------------------------------------------------------------------------------


def shown(measure: str, mean: float, half: float, n: int = 3, **options: bool) -> str:
    column = {**ENDS, **TARGETS}[measure]
    row = {"n": n, "mean": mean, "high": mean + half}
    return cell(row, column, runs=3, signed=options.get("signed", False))


def test_cells_have_units_and_the_same_places_on_both_sides() -> None:
    assert shown("accuracy", 0.9512, 0.0083) == "95.1 ± 0.8 %"
    assert shown("accuracy", 0.9512, math.nan) == "95.1 ± – %"
    assert shown("accuracy", -0.0123, 0.004, signed=True) == "-1.2 ± 0.4 points"
    assert shown("loss", 0.18943, 0.002) == "0.1894 ± 0.0020"
    assert shown("loss", 0.0, math.nan) == "0.0000 ± –"
    assert shown("bytes", 3 * 2**20, 2**19) == "3.0 ± 0.5 MiB"
    assert shown("scenario_s", 6.217, 0.5) == "6.22 ± 0.50 s"
    assert shown("rounds_to_target", 12.0, 2.0, n=2) == "12.0 ± 2.0 (2 of 3)"
    assert shown("rounds_to_target", math.nan, math.nan, n=0) == "– (0 of 3)"


def courses(measure: str, **variants: list[list[float]]) -> pd.DataFrame:
    """Variant to the values of each seed, round by round."""
    rows = [
        {"variant": variant, "seed": seed, "round": number, "loss": math.nan,
         "accuracy": math.nan, "bytes": 100.0 * number, "scenario_s": math.nan, measure: value}
        for variant, seeds in variants.items()
        for seed, values in enumerate(seeds)
        for number, value in enumerate(values)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def titles_of(figure: Figure) -> list[str]:
    return [axes.get_title(loc="left") for axes in figure.axes]


def test_the_figure_says_who_ended_best_and_who_was_ahead_with_the_same_bytes() -> None:
    slow = [[0.1, 0.2, 0.92], [0.1, 0.2, 0.88]]
    figure = draw(courses("accuracy", quick=[[0.1, 0.71], [0.1, 0.69]], slow=slow))
    assert titles_of(figure) == ["slow ended best, at 90.0 %", "Best for 100 B: quick, at 70.0 %"]
    lines = {line.get_label(): np.asarray(line.get_ydata()) for line in figure.axes[0].lines}
    np.testing.assert_allclose(lines["quick"], [0.1, 0.7])


def test_courses_are_steps_because_a_model_stays_as_it_is_in_an_empty_round() -> None:
    lines = [
        line
        for axes in draw(courses("loss", a=[[3.0, 2.0], [3.0, 2.0, 1.0]])).axes
        for line in axes.lines
        if len(np.asarray(line.get_xdata())) > 1
    ]
    assert {line.get_drawstyle() for line in lines} == {"steps-post"}


def test_a_task_without_accuracy_is_compared_by_its_loss() -> None:
    figure = draw(courses("loss", a=[[3.0, 2.0]] * 2, b=[[3.0, 1.0]] * 2))
    assert titles_of(figure)[0] == "b ended best, at 1"


def test_a_difference_whose_interval_contains_0_has_no_winner() -> None:
    # The differences are 0.1 and 0.3: with two seeds 0.2 ± 12.7 * 0.1.
    figure = draw(courses("accuracy", a=[[0.1, 0.5]] * 2, b=[[0.1, 0.6], [0.1, 0.8]]))
    assert titles_of(figure) == [
        "No variant ended clearly best",
        "For 100 B, no variant is clearly best",
    ]


def test_one_seed_has_no_winner() -> None:
    figure = draw(courses("accuracy", a=[[0.1, 0.5]], b=[[0.1, 0.9]]))
    assert titles_of(figure)[0] == "No variant ended clearly best"


def test_a_winner_is_better_than_every_other_variant() -> None:
    first, second, third = [[0.1, 0.5]] * 2, [[0.1, 0.8]] * 2, [[0.1, 0.7], [0.1, 0.85]]
    assert titles_of(draw(courses("accuracy", a=first, b=second)))[0].startswith("b ended best")
    assert titles_of(draw(courses("accuracy", a=first, b=second, c=third)))[0].startswith("No ")


def test_the_band_is_the_interval_of_the_tables() -> None:
    values = [0.6, 0.7, 0.74]
    axes = draw(courses("accuracy", a=[[value, value] for value in values])).axes[0]
    (band,) = axes.collections
    expected = interval(values)
    end = [y for x, y in np.asarray(band.get_paths()[0].vertices) if x == 1]
    assert (min(end), max(end)) == pytest.approx(
        (expected.mean - expected.half, expected.mean + expected.half)
    )


@pytest.mark.parametrize(
    ("measure", "seeds", "expected"),
    [
        ("accuracy", [0.9, 0.98], (None, 1.0)),  # 0.94 ± 0.51
        ("accuracy", [0.02, 0.1], (0.0, None)),
        ("loss", [0.1, 0.5], (0.0, None)),
        ("loss", [-0.1, 0.5], (0.2 - 12.7062 * 0.3, None)),  # a loss below 0 is possible here
    ],
)
def test_a_band_shows_only_possible_values(
    measure: str, seeds: list[float], expected: tuple[float | None, float | None]
) -> None:
    figure = draw(courses(measure, a=[[value, value] for value in seeds]))
    for axes in figure.axes:
        (band,) = axes.collections
        ys = [y for _, y in np.asarray(band.get_paths()[0].vertices)]
        for found, wanted in zip((min(ys), max(ys)), expected, strict=True):
            assert wanted is None or found == pytest.approx(wanted, abs=1e-4)
        if measure == "accuracy":
            assert 0 <= axes.get_ylim()[0] < axes.get_ylim()[1] <= 1


def test_scenario_time_is_an_axis_where_it_is_known() -> None:
    table = courses("accuracy", quick=[[0.1, 0.7, 0.8]] * 2, slow=[[0.1, 0.2, 0.9]] * 2)
    each_s = {"quick": 600.0, "slow": 3600.0}
    table["scenario_s"] = table["variant"].map(each_s) * table["round"]
    figure = draw(table)
    labels = [axes.get_xlabel() for axes in figure.axes]
    assert labels == ["round", "hours of scenario time", "bytes up and down since the start"]
    # quick needs 20 minutes in all, in which slow has not finished a round.
    assert titles_of(figure)[1] == "Best for 20 min 00 s: quick, at 80.0 %"
    ends = [float(np.asarray(line.get_xdata())[-1]) for line in figure.axes[1].lines]
    assert max(ends) == 2.0


def test_the_target_is_a_line_in_every_panel_and_inside_it() -> None:
    figure = draw(courses("accuracy", a=[[0.1, 0.5]]), {"accuracy": [0.9], "loss": [0.3]})
    assert len(figure.axes) == 2
    for axes in figure.axes:
        (line,) = (each for each in axes.lines if each.get_linestyle() == ":")
        assert list(np.asarray(line.get_ydata())) == [0.9, 0.9]
        assert axes.get_ylim()[1] > 0.9
    named = [text.get_text() for text in figure.legends[0].get_texts()]
    assert named == ["a", "target: 90.0 %"]


def test_a_mean_line_ends_where_the_first_of_its_seeds_does_and_the_others_go_on_alone() -> None:
    axes = draw(courses("loss", a=[[3.0, 2.0], [3.0, 2.0, 1.0]])).axes[0]
    mean, alone = (y.tolist() for line in axes.lines if len(y := np.asarray(line.get_ydata())) > 1)
    assert (mean, alone) == ([3, 2], [2, 1])
    assert axes.get_title(loc="left") == "a ended at 1.5"


def test_a_figure_of_nothing_says_so() -> None:
    empty = pd.DataFrame(columns=["variant", "seed", "round", "loss", "accuracy"])
    assert draw(empty).axes[0].get_title(loc="left") == "No evaluation"


def test_names_are_no_formulas(tmp_path: Path) -> None:
    draw(courses("loss", **{"a=$x$ _{": [[1.0]]})).savefig(tmp_path / "figure.png")
