"""The study `usual-rules`, on runs that never were."""

import json

import numpy as np
import pandas as pd
import pytest
from tests.studies.made import MadeResult, statements

from muster.common.seeds import FloatArray
from muster.studies import Claim, Options, Results, StudyRun
from muster.studies.usual_rules.fleet import (
    ALL_COME,
    CLIPPING,
    COME,
    FEDADAM,
    FEDAVG,
    FEDNOVA,
    FEDYOGI,
    GROUPS,
    KRUM,
    MEDIAN,
    NOISE,
    NONE_COME,
    OFTEN,
    ONE_COMES,
    ORACLE,
    Q1,
    Q5,
    RATE,
    RULES,
    SCAFFOLD,
    SELDOM,
    TRIMMED,
    scenario,
)
from muster.studies.usual_rules.known import DEVICES, IS_SELDOM, WEIGHTS, UsualProblem, known
from muster.studies.usual_rules.measures import measures
from muster.studies.usual_rules.study import ROUNDS, UsualRulesStudy, rules

STUDY = UsualRulesStudy(kind="usual-rules")
QUICK = Options(quick=True, seeds=1)
FULL = Options(seeds=5)
ONE_SEED = Options(seeds=1)
SEED = 101

BIASES = {
    (ALL_COME, FEDNOVA): -0.1,
    (ALL_COME, SCAFFOLD): 0.0,
    (ALL_COME, Q1): -0.2,
    (ALL_COME, Q5): -0.5,
    (ALL_COME, MEDIAN): 0.9,
    (ALL_COME, TRIMMED): 0.6,
    (ALL_COME, KRUM): 0.8,
    (ALL_COME, "multi-krum"): 1.0,
    (ALL_COME, "bulyan"): 0.9,
    (ALL_COME, CLIPPING): 0.7,
    (ONE_COMES, FEDNOVA): 0.75,
    (ONE_COMES, SCAFFOLD): 0.0,
    (ONE_COMES, Q1): 0.2,
    (ONE_COMES, Q5): -0.3,
    (ONE_COMES, MEDIAN): 1.0,
    (ONE_COMES, TRIMMED): 1.0,
    (ONE_COMES, ORACLE): 0.34,
    (NONE_COME, SCAFFOLD): 1.0,
}
"""The biases that differ from that of FedAvg."""
OF_FEDAVG = {ALL_COME: 0.34, ONE_COMES: 0.87}
ACROSS = {NOISE: 0.08}
"""How far the last model is moved across the pull."""


def result_of(
    run: StudyRun,
    biases: dict[tuple[str, str], float] = BIASES,
    ended: bool = True,
    across: dict[str, float] = ACROSS,
    lost: int = 0,
) -> MadeResult:
    rule, problem = str(run.labels["rule"]), known(run.scenario.seed)
    bias = biases.get((run.part, rule), OF_FEDAVG.get(run.part, 1.0))
    side = np.linalg.svd(problem.pull[None])[2][1]
    away = bias * problem.pull + across.get(rule, 0.0) * problem.unit * side
    # The start is far off, and must not count.
    ends = [json.dumps({"distance": d}) for d in (9.0, float(np.linalg.norm(away)))]
    updates = ROUNDS * (GROUPS[OFTEN].size + COME[run.part]) - lost
    return MadeResult(
        run,
        {"evaluations": pd.DataFrame({"round": [1, ROUNDS], "metrics": ends})},
        ended=ended,
        summary={"rounds": ROUNDS, "updates_folded": updates},
        vector=lambda: problem.optimum + away,
    )


def judged(options: Options, **made: object) -> dict[str, Claim]:
    results = Results([result_of(run, **made) for run in STUDY.runs(options)])  # type: ignore[arg-type]
    return statements(STUDY.judge(results, options))


def failing(claims: dict[str, Claim]) -> list[str]:
    return [text for text, claim in claims.items() if not claim.holds]


# --- what is run ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "runs", "minutes"), [(FULL, 5 * 31, 15), (QUICK, 25, 2.5)])
def test_every_rule_is_run_with_all_devices_and_with_one_of_six(
    options: Options, runs: int, minutes: float
) -> None:
    planned = STUDY.runs(options)
    assert len({run.title for run in planned}) == len(planned) == runs
    assert sum(run.expected_s for run in planned) < 60 * minutes
    for part in (ALL_COME, ONE_COMES):
        first = [r for r in planned if r.part == part and r.scenario.seed == options.seed]
        assert [run.labels["rule"] for run in first] == rules(options)


def test_rules_differ_in_the_settings_of_the_server_alone() -> None:
    first = scenario(7, 5, FEDAVG, ONE_COMES)
    for rule in RULES:
        other = scenario(7, 5, rule, ONE_COMES)
        assert other.model_copy(update={"server": first.server}) == first


def test_parts_differ_in_how_many_of_one_group_come() -> None:
    first = scenario(7, 5, FEDAVG, ALL_COME)
    for part in (ONE_COMES, NONE_COME):
        other = scenario(7, 5, FEDAVG, part)
        assert other.model_copy(update={"groups": first.groups}) == first
        assert other.groups[0] == first.groups[0]
        fields = {"availability", "participation"}
        assert other.groups[1].model_dump(exclude=fields) == first.groups[1].model_dump(
            exclude=fields
        )


# --- what is known -------------------------------------------------------------------------------


def ends(problem: UsualProblem, weights: FloatArray) -> FloatArray:
    """Where a weighted mean of updates ends, step by step: gradient steps in every device, and a
    mean of the devices' models, a thousand times."""
    theta = np.zeros(len(problem.optimum))
    for _ in range(1000):
        models = []
        for x, y, group in zip(problem.x, problem.y, DEVICES, strict=True):
            model = theta.copy()
            for _ in range(group.steps):
                model -= RATE * x.T @ (x @ model - y) / len(x)
            models.append(model)
        theta = weights @ np.array(models) / weights.sum()
    return theta


def test_the_computed_limit_is_where_gradient_steps_end() -> None:
    often = np.where(IS_SELDOM, 1 / 6, 1.0)
    expected = ends(known(SEED), often)
    assert known(SEED).limit(FEDAVG, ONE_COMES) == pytest.approx(expected, abs=1e-6)


def test_weights_of_a_mean_follow_from_who_comes_and_how_far_they_go() -> None:
    assert WEIGHTS[FEDAVG](0.5, 4) == 0.5
    assert WEIGHTS[FEDNOVA](0.5, 4) == 0.125
    assert WEIGHTS[ORACLE](0.5, 4) == WEIGHTS[ORACLE](1.0, 2)


def test_a_bias_is_0_at_the_optimum_of_all_and_1_at_that_of_those_that_always_come() -> None:
    problem = known(SEED)
    assert problem.bias(problem.optimum) == 0
    assert problem.bias(problem.optimum + problem.pull) == pytest.approx(1)
    gradients = [
        x.T @ (x @ (problem.optimum + problem.pull) - y)
        for x, y, away in zip(problem.x, problem.y, IS_SELDOM, strict=True)
        if not away
    ]
    assert np.mean(gradients, axis=0) == pytest.approx(0, abs=1e-5)


# --- what is measured ----------------------------------------------------------------------------


def test_measures_of_a_run() -> None:
    runs = [run for run in STUDY.runs(QUICK) if run.labels["rule"] == FEDNOVA]
    found = measures(result_of(runs[1]))
    assert runs[1].part == ONE_COMES
    assert found["bias"] == pytest.approx(0.75, abs=1e-5)
    assert found["distance"] == pytest.approx(0.75)
    assert found["settled after"] == 1
    assert found["updates a round"] == 15
    problem = known(SEED)
    theta = problem.optimum + 0.75 * problem.pull
    losses = [np.mean((x @ theta - y) ** 2) / 2 for x, y in zip(problem.x, problem.y, strict=True)]
    assert found["loss of seldom"] == pytest.approx(np.mean(losses[-6:]), rel=1e-5)


# --- what is claimed -----------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "claims"), [(FULL, 36), (QUICK, 31)])
def test_runs_that_went_as_claimed_make_all_claims_hold(options: Options, claims: int) -> None:
    found = judged(options)
    assert failing(found) == []
    assert len(found) == claims


@pytest.mark.parametrize(
    ("biases", "words"),
    [
        ({(ALL_COME, FEDNOVA): 0.3}, "fednova is less than half as far"),
        ({(ONE_COMES, ORACLE): 0.6}, "oracle-ipw has the bias that fedavg has"),
        ({(ONE_COMES, SCAFFOLD): 0.2}, "one of six comes: the distance of scaffold"),
        ({(ALL_COME, SCAFFOLD): 0.1}, "all come: the distance of scaffold"),
        ({(NONE_COME, SCAFFOLD): 0.8}, "scaffold is at the optimum of those that come"),
        ({(ALL_COME, FEDADAM): 0.5}, "all come: fedadam has the bias of fedavg"),
        ({(ALL_COME, FEDYOGI): 0.5}, "all come: fedyogi has the bias of fedavg"),
        ({(ALL_COME, Q1): 0.0}, "q = 1 goes past the optimum"),
        ({(ONE_COMES, Q5): 0.3}, "one of six comes: the loss of the smaller group falls"),
        ({(ALL_COME, KRUM): 0.4}, "krum has a larger bias"),
        ({(ONE_COMES, MEDIAN): 0.8}, "median is at the optimum"),
        ({(ONE_COMES, NOISE): 1.05}, "one of six comes: noise leaves the bias"),
        ({(ALL_COME, CLIPPING): 0.4}, "clipping adds to the bias"),
    ],
)
def test_a_bias_of_another_size_breaks_the_claim_that_states_it(
    biases: dict[tuple[str, str], float], words: str
) -> None:
    assert any(words in text for text in failing(judged(ONE_SEED, biases={**BIASES, **biases})))


def test_a_fleet_without_unavailability_breaks_what_is_said_of_it() -> None:
    alike = {(ONE_COMES, rule): BIASES.get((ALL_COME, rule), 0.34) for rule in RULES}
    broken = failing(judged(QUICK, biases={**BIASES, **alike}))
    assert sum("is larger if one of six comes" in text for text in broken) == 4
    assert "one of six comes: the bias of fednova is the computed one" in broken


def test_noise_that_moves_nothing_breaks_its_claims_alone() -> None:
    broken = failing(judged(QUICK, across={}))
    assert broken == [f"{part}: noise moves the last model" for part in (ALL_COME, ONE_COMES)]


def test_a_device_that_does_not_come_breaks_a_check_alone() -> None:
    (broken,) = failing(judged(QUICK, lost=1))
    assert broken.startswith("The number of runs in which not as many devices came")


def test_runs_that_failed_break_claims_and_no_judgement() -> None:
    runs = STUDY.runs(QUICK)
    results = Results([result_of(run, ended=run.labels["rule"] != KRUM) for run in runs])
    broken = failing(statements(STUDY.judge(results, QUICK)))
    assert len(broken) == 2
    assert sum("krum" in text for text in broken) == 1
    nothing = statements(STUDY.judge(Results([result_of(r, ended=False) for r in runs]), QUICK))
    assert failing(nothing) == list(nothing)


def test_table_and_figure_have_every_rule() -> None:
    findings = STUDY.judge(Results([result_of(run) for run in STUDY.runs(ONE_SEED)]), ONE_SEED)
    assert len(findings.tables[0].frame) == 2 * len(RULES) + 1
    (figure,) = findings.figures
    (axes,) = figure.draw().axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == list(RULES)
    assert GROUPS[SELDOM].size == COME[ALL_COME]
