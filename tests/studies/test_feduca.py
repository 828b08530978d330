"""The study `feduca`, on runs that never were."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from tests.studies.made import MadeResult, statements

from muster.studies import Claim, Options, Results, StudyRun
from muster.studies.feduca import measures
from muster.studies.feduca.claims import (
    AS_PRINTED,
    CIFAR,
    DELTA,
    INFLATION,
    NEWS,
    SAME_TEST,
    STRATEGIES_PART,
)
from muster.studies.feduca.fleet import (
    AAGGFF,
    ALWAYS,
    COIN,
    EQUATION_1,
    FEDAVG,
    FEDPROX,
    FEDUCA,
    INCFL,
    INSTITUTES,
    PRINTED,
    SOLVE_FIRST,
    SOLVING,
    WARM_ROUNDS,
    WARM_START,
)
from muster.studies.feduca.study import FedUcaStudy, OtherBaselines

STUDY = FedUcaStudy(kind="feduca")
QUICK = Options(quick=True, seeds=2)
FULL = Options(seeds=5, data="/data")

CLIENTS = [f"institute-{number:04}" for number in range(INSTITUTES)]


class Made(NamedTuple):
    """What a made run does: how many institutes accept when they are free to decline, the accuracy
    of its model, the Jensen gap of all institutes, and R² of the fits."""

    accepting: int
    accuracy: float
    gap: float = 0.01
    fit: float = 0.8


def as_claimed(run: StudyRun) -> Made:
    """A run in which all claims hold."""
    method, test = run.labels["method"], run.labels["test"]
    if run.part == INFLATION:
        return Made(3 if run.labels["change"] == "inflation 0.05" else 1, 0.6)
    if run.part == DELTA:
        delta = float(str(run.labels["change"]).removeprefix("δ = "))
        accepting = 5 if test == PRINTED else 3
        return Made(accepting, 0.6, gap=0.03 if 0.1 <= delta <= 100 else 0.005)
    if test in (ALWAYS, PRINTED) and method not in (FEDUCA, SOLVE_FIRST):
        return Made(10, 0.75)
    if test in (COIN, PRINTED):
        return Made(5, 0.74)
    return Made(2, 0.65 if method == WARM_START else 0.5)


def result_of(
    run: StudyRun, made: Callable[[StudyRun], Made] = as_claimed, ended: bool = True
) -> MadeResult:
    rounds = run.scenario.server.rounds
    doing = made(run)
    forced = WARM_ROUNDS if run.labels["method"] == WARM_START else 1
    numbers = np.arange(1, rounds + 1)
    shift = (run.scenario.seed - 100) / 10_000
    answers, valuations, estimates = [], [], []
    for number in range(1, rounds + 1):
        accepting = INSTITUTES if number <= forced else doing.accepting
        for place, client in enumerate(CLIENTS):
            decision = "accept" if place < accepting else "decline"
            answers.append((number, client, decision))
            gains = math.nan if number == 1 else float(place < 4)
            valuations.append((number, client, gains, doing.fit))
            estimates.append((number, "alpha", client, 0.1))
        if run.labels["method"] in SOLVING:
            estimates += _solved(number, doing, run)
    evaluations = pd.DataFrame(
        {"round": [0, *numbers], "accuracy": [0.1, *[doing.accuracy + shift] * rounds]}
    )
    tables = {
        "answers": pd.DataFrame(answers, columns=["round", "client", "decision"]),
        "valuations": pd.DataFrame(valuations, columns=["round", "client", "gains", "r_squared"]),
        "estimates": pd.DataFrame(estimates, columns=["round", "name", "key", "value"]),
        "evaluations": evaluations,
    }
    return MadeResult(run, tables, ended=ended)


def _solved(number: int, doing: Made, run: StudyRun) -> list[tuple[int, str, str, float]]:
    strategies = 1 if run.part == STRATEGIES_PART else 5
    rows = [(number, "mixture", str(one), 1 / strategies) for one in range(strategies)]
    rows.append((number, "attainable", "", float(INSTITUTES)))
    for place, client in enumerate(CLIENTS):
        rows.append((number, "jensen_gap", client, doing.gap / INSTITUTES))
        rows.append((number, "missing_utility", client, 0.01))
        rows.append((number, "predicted", client, float(place < doing.accepting)))
    return rows


def judged(options: Options = QUICK, **made: Any) -> dict[str, Claim]:
    runs = STUDY.runs(options)
    return statements(STUDY.judge(Results([result_of(run, **made) for run in runs]), options))


def failing(found: dict[str, Claim]) -> list[str]:
    return [text for text, claim in found.items() if not claim.holds]


@pytest.mark.parametrize("options", [QUICK, FULL], ids=["quick", "full"])
def test_runs_that_went_as_claimed_make_all_claims_hold(options: Options) -> None:
    assert not failing(judged(options))


def test_every_claim_says_why() -> None:
    runs = STUDY.runs(QUICK)
    findings = STUDY.judge(Results([result_of(run) for run in runs]), QUICK)
    assert not [claim.claim for claim in findings.claims if not claim.why]


def test_no_claim_holds_without_its_run() -> None:
    found = judged(ended=False)
    assert found
    assert all(not claim.holds for claim in found.values())


def changed(**how: Callable[[StudyRun], Made | None]) -> Callable[[StudyRun], Made]:
    (change,) = how.values()

    def made(run: StudyRun) -> Made:
        return change(run) or as_claimed(run)

    return made


def is_run(run: StudyRun, method: str, test: str) -> bool:
    return (run.labels["method"], run.labels["test"]) == (method, test)


def test_weights_that_keep_institutes_under_eq_1_contradict_the_same_test_claims() -> None:
    def keeps(run: StudyRun) -> Made | None:
        return Made(5, 0.7) if is_run(run, FEDUCA, EQUATION_1) else None

    assert failing(judged(made=changed(how=keeps))) == [
        "FedUCA keeps more institutes under the printed rule than under eq. 1"
    ]


def test_a_fedavg_that_loses_institutes_under_the_printed_rule_contradicts_a_claim() -> None:
    def loses(run: StudyRun) -> Made | None:
        return Made(9, 0.75) if is_run(run, FEDAVG, PRINTED) else None

    assert failing(judged(made=changed(how=loses))) == [
        "Under the printed rule, fedavg keeps all institutes"
    ]


def test_a_coin_that_is_worse_contradicts_a_claim() -> None:
    def worse(run: StudyRun) -> Made | None:
        return Made(5, 0.7) if is_run(run, FEDAVG, COIN) else None

    assert failing(judged(made=changed(how=worse))) == [
        "FedUCA as printed is at most 0.02 better than FedAvg where a coin decides"
    ]


@pytest.mark.parametrize("method", [FEDAVG, FEDPROX, INCFL, AAGGFF])
def test_a_baseline_that_keeps_institutes_contradicts_the_table_as_printed(method: str) -> None:
    def keeps(run: StudyRun) -> Made | None:
        own = is_run(run, method, EQUATION_1) and run.part != SAME_TEST
        return Made(6, 0.5) if own else None

    assert failing(judged(made=changed(how=keeps))) == [
        f"As printed{split}: FedUCA keeps more institutes than {method}"
        for split in ("", ", Dir(1)")
    ]


def test_a_gap_that_only_falls_with_delta_contradicts_claims() -> None:
    def falls(run: StudyRun) -> Made | None:
        if run.part != DELTA:
            return None
        delta = float(str(run.labels["change"]).removeprefix("δ = "))
        return Made(3, 0.6, gap=0.03 / (1 + delta))

    assert failing(judged(made=changed(how=falls))) == [
        "As printed, the Jensen gap is larger at δ = 1 than at 0.01",
        "With binding thresholds, the Jensen gap is larger at δ = 1 than at 0.01",
    ]


def test_participation_that_grows_with_delta_as_in_the_paper_contradicts_a_claim() -> None:
    def grows(run: StudyRun) -> Made | None:
        printed = run.part == DELTA and run.labels["test"] == PRINTED
        return Made(3, 0.6) if printed and run.labels["change"] == "δ = 0.01" else None

    assert failing(judged(made=changed(how=grows))) == [
        "As printed, FedUCA keeps at most 0.15 of the institutes more at δ = 1 than at 0.01"
    ]


def test_inflation_without_an_effect_contradicts_a_claim() -> None:
    def nothing(run: StudyRun) -> Made | None:
        return Made(5, 0.74) if run.part == INFLATION else None

    assert failing(judged(made=changed(how=nothing))) == [
        f"If all institutes overstate their thresholds by {share}, fewer stay, by more than 0.2"
        for share in ("5%", "10%")
    ]


def test_a_poor_fit_contradicts_a_claim() -> None:
    def poor(run: StudyRun) -> Made | None:
        return Made(5, 0.74, fit=0.3) if is_run(run, FEDUCA, PRINTED) else None

    (text,) = {text for text in failing(judged(made=changed(how=poor))) if "R²" in text}
    assert "over 0.5" in text


@pytest.mark.parametrize("options", [QUICK, FULL], ids=["quick", "full"])
def test_all_pictures_are_standardised(options: Options) -> None:
    tasks = [run.scenario.task.model_dump() for run in STUDY.runs(options)]
    pictures = {task["name"]: task["standardise"] for task in tasks if task["name"] != "20news"}
    expected = ["digits"] if options.data is None else ["fashion-mnist", "cifar10"]
    assert pictures == dict.fromkeys(expected, True)


def test_the_full_form_has_every_row_of_table_2_and_of_table_7() -> None:
    table_2 = {FEDUCA, FEDAVG, FEDPROX, WARM_START, INCFL, AAGGFF}
    rows: dict[tuple[str, str], set[str]] = {}
    for run in STUDY.runs(FULL):
        labels = run.labels
        if labels["test"] == (PRINTED if labels["method"] == FEDUCA else EQUATION_1):
            row = rows.setdefault((run.part, str(labels.get("change", ""))), set())
            row.add(str(labels["method"]))
    for part in (AS_PRINTED, CIFAR):
        assert rows[part, ""] == rows[part, "Dir(1)"] == table_2
    assert rows[NEWS, ""] == table_2 - {WARM_START}


def test_gaps_are_those_of_the_rounds_in_which_they_are_largest() -> None:
    # Round 1 does not count. The others have 0.1, 0.4, 0.2 and 0.3 for each of ten institutes: the
    # mean is 2.5, that of the upper half 3.5, and that of the upper quarter 4.
    estimates = [(1, "jensen_gap", client, 9.0) for client in CLIENTS]
    for number, gap in ((2, 0.1), (3, 0.4), (4, 0.2), (5, 0.3)):
        estimates += [(number, "jensen_gap", client, gap) for client in CLIENTS]
    run = one_run(SAME_TEST, FEDUCA, EQUATION_1)
    tables = dict(vars(result_of(run).account))
    frame = pd.DataFrame(estimates, columns=["round", "name", "key", "value"])
    others = tables["estimates"][tables["estimates"]["name"] != "jensen_gap"]
    found = measures.measures_of(
        MadeResult(run, {**tables, "estimates": pd.concat([others, frame])})
    )
    assert [found[name] for name in measures.GAPS] == pytest.approx([2.5, 3.5, 4.0])


def one_run(part: str, method: str, test: str) -> StudyRun:
    return next(run for run in STUDY.runs(QUICK) if run.part == part and is_run(run, method, test))


def test_participation_and_accuracy_are_those_of_the_last_rounds() -> None:
    run = one_run(SAME_TEST, FEDAVG, COIN)
    found = measures.measures_of(result_of(run))
    assert found["participation"] == 0.5
    assert found["eq. 1"] == 0.4
    assert found["accuracy"] == pytest.approx(0.74 + (run.scenario.seed - 100) / 10_000)
    assert found["weight change"] == 0.0
    assert "jensen gap" not in found


def test_rounds_without_a_version_keep_the_accuracy_of_the_model() -> None:
    run = one_run(SAME_TEST, FEDAVG, COIN)
    tables = {"evaluations": pd.DataFrame({"round": [0, 2, 5], "accuracy": [0.1, 0.3, 0.6]})}
    course = measures.accuracies(MadeResult(run, tables))
    assert course.iloc[:6].tolist() == [0.1, 0.3, 0.3, 0.3, 0.6, 0.6]
    assert len(course) == run.scenario.server.rounds
    assert course.iloc[-1] == 0.6


def estimates_of(rows: list[tuple[int, str, str, float]]) -> Any:
    frame = pd.DataFrame(rows, columns=["round", "name", "key", "value"])
    return MadeResult(one_run(SAME_TEST, FEDUCA, EQUATION_1), {"estimates": frame}).account


def test_the_discrepancy_is_compared_with_the_bound_of_the_same_weights() -> None:
    # Two strategies with s = (0.75, 0.25): (2·0.625 - 1)/10 = 0.025. One of ten clients has 0.19,
    # the others 0.09: 0.0081 + 9·0.0001 = 0.009.
    rows = [(1, "mixture", "0", 0.75), (1, "mixture", "1", 0.25)]
    solved = [0.19, *[0.09] * 9]
    rows += [(1, "solved", client, each) for client, each in zip(CLIENTS, solved, strict=True)]
    rows += [(1, "alpha", client, 0.1) for client in CLIENTS]  # of the round before
    found = measures.discrepancies(estimates_of(rows))
    assert found.loc[1].to_numpy().tolist() == pytest.approx([0.009, 0.025])


def test_weights_for_one_device_have_the_bound_of_all_mixtures() -> None:
    rows = [(1, "mixture", "0", 0.5), (1, "mixture", "1", 0.5), (1, "fallback", "", math.nan)]
    rows += [(1, "alpha", client, 0.1) for client in CLIENTS]
    found = measures.discrepancies(estimates_of(rows))
    assert found.loc[1].to_numpy().tolist() == pytest.approx([0.0, 0.1])  # (2 - 1)/10


def test_a_decision_is_compared_with_the_prediction_of_the_round_before() -> None:
    answers = pd.DataFrame(
        [(1, "a", "accept"), (1, "b", "accept"), (2, "a", "accept"), (2, "b", "decline"),
         (3, "a", "decline"), (3, "b", "decline")],
        columns=["round", "client", "decision"],
    )  # fmt: skip
    run = one_run(SAME_TEST, FEDAVG, COIN)
    account = MadeResult(run, {"answers": answers}).account
    predicted = pd.DataFrame({"a": [1.0, 1.0, 0.0], "b": [0.0, 0.0, 1.0]}, index=[1, 2, 3])
    # Round 1 foresees round 2. Round 2 foresees that a stays in round 3, which it does not. Nothing
    # is known about round 4.
    assert measures.mispredicted(account, predicted) == 1


def test_all_figures_can_be_drawn() -> None:
    runs = STUDY.runs(QUICK)
    findings = STUDY.judge(Results([result_of(run) for run in runs]), QUICK)
    drawn = {figure.name: figure.draw() for figure in findings.figures}
    assert set(drawn) == {"as-printed", "same-test", "deltas", "discrepancy"}
    assert all(isinstance(figure, Figure) and figure.axes for figure in drawn.values())
    lines = {line.get_label() for line in drawn["same-test"].axes[0].get_lines()}
    assert {"fedavg, a coin", "feduca, eq. 1", "feduca, printed rule"} <= lines


def test_no_line_of_a_figure_is_cut_off() -> None:
    runs = STUDY.runs(QUICK)
    findings = STUDY.judge(Results([result_of(run) for run in runs]), QUICK)
    for figure in findings.figures:
        for axes in figure.draw().axes:
            values = np.concatenate([np.ravel(line.get_ydata()) for line in axes.get_lines()])
            low, high = axes.get_ylim()
            assert low <= np.nanmin(values.astype(float)), figure.name
            assert np.nanmax(values.astype(float)) <= high, figure.name


def test_the_table_as_printed_has_every_method_once() -> None:
    runs = STUDY.runs(QUICK)
    findings = STUDY.judge(Results([result_of(run) for run in runs]), QUICK)
    tables = {table.name: table.frame for table in findings.tables}
    assert sorted(tables["as-printed"]["method"]) == sorted(
        2 * [FEDUCA, FEDAVG, FEDPROX, WARM_START, INCFL, AAGGFF]  # for both splits
    )
    assert set(tables["same-test"]["test"]) == {EQUATION_1, PRINTED, COIN, ALWAYS}
    assert tables["fit"]["r squared"].tolist() == pytest.approx([0.8, 0.8])


def test_the_other_baselines_have_a_table_with_the_least_and_the_most_participation() -> None:
    study = OtherBaselines(kind="feduca")

    def by_seed(run: StudyRun) -> Made:
        return Made(2 + run.scenario.seed % 2, 0.5)

    results = [result_of(run, by_seed) for run in study.runs(QUICK)]
    findings = study.judge(Results(results), QUICK)
    assert not findings.claims
    (table,) = findings.tables
    assert len(table.frame) == 8
    assert table.frame["least"].tolist() == pytest.approx([0.2] * 8)
    assert table.frame["most"].tolist() == pytest.approx([0.3] * 8)
