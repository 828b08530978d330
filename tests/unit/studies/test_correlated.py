"""The study `correlated`, on runs that never were."""

import json
from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from tests.unit.studies.made import MadeResult, statements

from muster.emulator.fleet.lives import task_of
from muster.emulator.fleet.oracle import shares_of
from muster.emulator.fleet.population import population
from muster.emulator.scenario.scenario import Scenario
from muster.emulator.studies import Claim, Options, Results, StudyRun
from muster.emulator.studies.correlated.fleet import (
    DEVICE_PROBABILITY,
    EVENTS,
    FAIR,
    GROUPS,
    LIMITS,
    SCHEMES,
    SIZES,
    Limit,
    classifier,
    ends_at,
    exact,
    surrogate,
)
from muster.emulator.studies.correlated.measures import mean_loss
from muster.emulator.studies.correlated.study import CorrelatedStudy
from muster.tasks.synthetic import OpenSynthetic

STUDY = CorrelatedStudy(kind="correlated")
QUICK = Options(quick=True, seeds=2)
FULL = Options(seeds=5)

FINALS = {
    "unlimited": {"unbiased": 0.045, "biased": 0.065, "debiased": 0.047, "exact": 0.047},
    "collide-3": {"biased": 0.09, "debiased": 0.049},
}


def result_of(
    run: StudyRun,
    finals: Mapping[str, Mapping[str, float]] = FINALS,
    ended: bool = True,
    point: tuple[float, ...] | None = None,
) -> MadeResult:
    """A result whose loss falls as a straight line to the value in `finals`."""
    scheme, limit = str(run.labels["scheme"]), str(run.labels["limit"])
    told = finals.get(limit, {"biased": 0.5, "debiased": 0.5}).get(scheme, 0.5)
    # Seeds differ, and by far more than the arms do.
    end = told + 0.001 * run.scenario.seed
    rounds, devices = run.scenario.server.rounds, run.scenario.devices
    summary = {
        "rounds": rounds,
        "empty_rounds": round(0.2 * rounds),
        "updates_folded": 4 * rounds,
        "seconds": 0.006 * rounds,
        "model_sha256": f"{scheme} {run.scenario.seed}",
        "final": {"groups": {group: {"loss": end} for group in GROUPS}},
    }
    metrics = [json.dumps({"distance": value}) for value in (1.0, end)]
    course = {"round": [0, rounds], "loss": [1.0, end], "accuracy": [1.0, end], "metrics": metrics}
    names = [resident.client for resident in population(run.scenario)]
    estimates = {"round": [rounds] * devices, "name": ["shares"] * devices, "key": names[::-1],
                 "value": np.repeat(exact().shares, SIZES)[::-1]}  # fmt: skip
    tables = {
        "evaluations": pd.DataFrame(course),
        "estimates": pd.DataFrame(estimates),
        "clients": pd.DataFrame({"client": names}),
    }

    def vector() -> npt.NDArray[np.float64]:
        known = next((known for known in LIMITS if str(known) == limit), None)
        return theta0(run.scenario) + (point or ends_at(scheme, known))

    return MadeResult(run, tables, ended=ended, summary=summary, vector=vector)


def theta0(scenario: Scenario) -> npt.NDArray[np.float64]:
    opened = task_of(scenario, population(scenario)).open(scenario.devices, scenario.seed)
    assert isinstance(opened, OpenSynthetic)
    return opened.theta


def judged(options: Options, **made: Any) -> dict[str, Claim]:
    results = Results([result_of(run, **made) for run in STUDY.runs(options)])
    return statements(STUDY.judge(results, options))


def failing(claims: Mapping[str, Claim]) -> list[str]:
    return [text for text, claim in claims.items() if not claim.holds]


# --- what is run ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "runs", "minutes"), [(FULL, 81, 40), (QUICK, 17, 3)])
def test_every_scheme_is_run_with_every_seed(options: Options, runs: int, minutes: float) -> None:
    planned = STUDY.runs(options)
    assert len({run.title for run in planned}) == len(planned) == runs
    assert sum(run.expected_s for run in planned) < 60 * minutes
    for seed in options.all_seeds:
        fig1 = [r for r in planned if r.part == "fig1" and r.scenario.seed == seed]
        assert [run.labels["scheme"] for run in fig1] == list(SCHEMES)


def test_the_setting_is_the_papers() -> None:
    read = classifier("debiased", 101, 1500, None)
    assert [group.count for group in read.groups] == [3, 4, 3]
    assert read.training.learning_rate_at(1) == pytest.approx(1500**-0.5)
    assert read.training.gradient
    opened = read.task.open(10, 101)
    assert len(set(opened.examples)) == 1, "fedavg is the plain mean only of equal ones"
    labels = [set(opened.client(index).y.tolist()) for index in range(10)]
    assert labels == [{0}] * 3 + [{1}] * 4 + [{2}] * 3
    shapes = [tuple(parameter.shape) for parameter in opened.module().parameters()]
    assert shapes == [(4, 64), (4,), (3, 4), (3,)]


def test_schemes_of_a_seed_differ_in_the_rule_alone() -> None:
    first, second = (classifier(scheme, 7, 50, None) for scheme in ("biased", "debiased"))
    assert second.model_copy(update={"server": first.server}) == first


def test_a_limit_is_slots_of_every_group() -> None:
    read = classifier("biased", 7, 50, None, Limit("subset", 2))
    assert {(g.shared_link.slots, g.shared_link.overflow) for g in read.groups} == {(2, "subset")}


def test_without_data_the_study_says_what_stands_in_for_mnist() -> None:
    assert "MNIST" in STUDY.remarks(FULL)[0]
    assert not STUDY.remarks(Options(data="/data"))
    assert classifier("biased", 7, 50, "/data").task.data.directory == "/data"


# --- what is exact -------------------------------------------------------------------------------


def by_all_sets(limit: Limit | None) -> tuple[list[float], float]:
    """c of a device of each group, and P(nobody gets through): equation (13), set by set."""
    group = np.repeat(range(3), SIZES)
    shares, nobody = np.zeros(10), 0.0
    for active in product((0, 1), repeat=10):
        x = np.array(active)
        chance = 1.0
        for g, (size, event) in enumerate(zip(SIZES, EVENTS, strict=True)):
            there = int(x[group == g].sum())
            one_by_one = DEVICE_PROBABILITY**there * (1 - DEVICE_PROBABILITY) ** (size - there)
            chance *= event * one_by_one + (1 - event) * (there == 0)
            if limit is not None and there > limit.slots:
                x[group == g] = 0
        if x.any():
            shares += chance * x / x.sum()
        else:
            nobody += chance
    return [float(shares[group == g].mean()) for g in range(3)], nobody


@pytest.mark.parametrize("limit", [None, Limit("collide", 3), Limit("collide", 2)])
def test_shares_are_those_of_adding_up_all_sets_of_devices(limit: Limit | None) -> None:
    shares, nobody = by_all_sets(limit)
    assert exact(limit).shares == pytest.approx(shares, abs=1e-13)
    assert exact(limit).empty == pytest.approx(nobody, abs=1e-13)
    read = classifier("exact", 7, 50, None, limit)
    assert shares_of(read, population(read)) == pytest.approx(np.repeat(shares, SIZES))


def test_a_plain_mean_weighs_the_middle_group_by_more_than_its_share() -> None:
    assert exact().biased == pytest.approx((0.214, 0.572, 0.214), abs=5e-4)
    assert ends_at("debiased", None) == FAIR == (0.3, 0.4, 0.3)


def test_the_surrogate_is_half_the_squared_distance_to_the_groups_corner() -> None:
    read = surrogate("biased", 7, 50)
    opened = task_of(read, population(read)).open(read.devices, read.seed)
    assert isinstance(opened, OpenSynthetic)
    for index, group in enumerate(np.repeat(range(3), SIZES)):
        x, y = opened.design(index)
        corner = theta0(read) + np.eye(3)[group]
        np.testing.assert_allclose(x.T @ x / len(x), np.eye(3), atol=1e-6)
        np.testing.assert_allclose(x.T @ y / len(x), corner, atol=1e-6)
    np.testing.assert_allclose(opened.optimum(), theta0(read) + FAIR, atol=1e-6)


# --- what is found -------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [FULL, QUICK])
def test_runs_that_went_as_claimed_make_all_claims_hold(options: Options) -> None:
    claims = judged(options)
    assert failing(claims) == []
    assert len(claims) == 23 if options is FULL else 19


def test_a_debiased_run_that_ends_where_the_biased_does_breaks_what_is_said_of_it() -> None:
    free = {**FINALS["unlimited"], "debiased": 0.065}
    broken = failing(judged(FULL, finals={**FINALS, "unlimited": free}))
    assert any("biased above debiased" in text for text in broken)
    assert any("debiased less unbiased" in text for text in broken)
    assert not any("biased above unbiased" in text for text in broken)


def test_a_surrogate_that_ends_elsewhere_breaks_its_claims_alone() -> None:
    broken = failing(judged(FULL, point=(0.6, 0.2, 0.2)))
    assert broken
    assert all(text.startswith("Surrogate") for text in broken)


def test_nothing_is_claimed_of_two_slots() -> None:
    assert not [text for text in judged(FULL) if "-2" in text or "M_max = 2" in text]


def test_runs_that_failed_break_claims_and_no_judgement() -> None:
    runs = STUDY.runs(QUICK)
    results = Results([result_of(run, ended=run.labels["scheme"] != "debiased") for run in runs])
    findings = STUDY.judge(results, QUICK)
    claims = statements(findings)
    assert claims["Final loss: biased above unbiased"].holds
    assert not claims["Final loss: biased above debiased"].holds
    assert not claims["M_max = 4 never binds: the model is that without a limit"].holds


def test_figures_and_tables_have_every_scheme_and_limit() -> None:
    findings = STUDY.judge(Results([result_of(run) for run in STUDY.runs(FULL)]), FULL)
    assert [figure.name for figure in findings.figures] == ["figure-1", "figure-2", "surrogate"]
    titles = [axes.get_title(loc="left") for axes in findings.figures[1].draw().axes]
    assert titles == [f"M_max = {limit.slots}, {limit.overflow}" for limit in LIMITS]
    losses, _, shares = (table.frame for table in findings.tables)
    assert len(losses) == len(SCHEMES) + 2 * len(LIMITS)
    assert len(shares) == 3 * (1 + len(LIMITS))
    assert set(shares[shares["below delta"] == "yes"]["limit"]) == {"collide-2"}
    row = losses.iloc[0]
    # .045 + .001 * (101 … 105)
    assert row["mean"] == pytest.approx(0.148)
    assert row["sd"] == pytest.approx(0.001 * 2.5**0.5)


def test_the_mean_over_rounds_bridges_rounds_in_which_nothing_was_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = next(iter(STUDY.runs(QUICK)))
    made = result_of(run)
    course = pd.Series([1.0, 0.5, 0.3], index=[0, 100, 300])
    monkeypatch.setattr(made, "course", lambda measure: course)
    # (.75 * 100 + .4 * 200 + .3 * 100) / 400
    assert mean_loss(made) == pytest.approx(0.4625)
