"""The study `correlated`, on runs that never were."""

import json
from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from tests.studies.made import MadeResult, statements

from muster.emulator.fleet.lives import task_of
from muster.emulator.planning.oracle import shares_of
from muster.emulator.scenario.population import population
from muster.emulator.scenario.scenario import Scenario
from muster.studies import Claim, Options, Results, StudyRun
from muster.studies.correlated.fleet import (
    AVERAGED,
    DEVICE_PROBABILITY,
    EVENTS,
    FAIR,
    GROUPS,
    LIMITS,
    LITERAL,
    SCHEMES,
    SIZES,
    TransferLimit,
    classifier,
    ends_at,
    exact,
    surrogate,
)
from muster.studies.correlated.measures import (
    last_fifth,
    mean_loss,
    mean_square_gradient,
)
from muster.studies.correlated.study import CorrelatedStudy
from muster.studies.correlated.theorem_claims import SHORT
from muster.tasks.synthetic import OpenSynthetic

STUDY = CorrelatedStudy(kind="correlated")
QUICK = Options(quick=True, seeds=STUDY.quick_seeds)
FULL = Options(seeds=5)

FINALS = {
    "unlimited": {"unbiased": 0.045, "biased": 0.065, "debiased": 0.047, "exact": 0.047},
    "collide-3": {"biased": 0.09, "debiased": 0.049},
    "collide-2": {"biased": 0.5, "debiased": 0.13},
    "subset-2": {"biased": 0.063, "debiased": 0.048},
    "fedavg": {"unbiased": 0.04, "biased": 0.06, "debiased": 0.043},
}


SQUARES = {"biased": (1.6, 1.1), "debiased": (1.5, 0.25)}
"""‖∇F‖² of short and of long runs of the theorems."""


def result_of(
    run: StudyRun,
    finals: Mapping[str, Mapping[str, float]] = FINALS,
    squares: Mapping[str, tuple[float, float]] = SQUARES,
    ended: bool = True,
    point: tuple[float, ...] | None = None,
    shares: npt.ArrayLike = 1.0,
) -> MadeResult:
    """A result whose loss falls at once to the value in `finals`.

    Args:
        squares: scheme to ‖∇F‖² in the short and the long runs of the theorems.
        point: where the surrogate ends, instead of the expected point.
        shares: factors of ĉ by device.
    """
    scheme, limit = str(run.labels["scheme"]), str(run.labels.get("limit"))
    arm = run.part if run.part == "fedavg" else limit
    told = finals.get(arm, {"biased": 0.5, "debiased": 0.5}).get(scheme, 0.5)
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
    distances = (1.0, end)
    if run.part == "theorems":
        distances = (squares[scheme][run.labels["rounds"] != SHORT] ** 0.5,) * 2
    metrics = [json.dumps({"distance": value}) for value in distances]
    course = {"round": [0, 1], "loss": [1.0, end], "accuracy": [1.0, end], "metrics": metrics}
    names = [resident.client for resident in population(run.scenario)]
    known = next((known for known in LIMITS if str(known) == limit), None)
    values = np.repeat(exact(known).shares, SIZES) * np.broadcast_to(shares, devices)
    estimates = {"round": [rounds] * devices, "name": ["shares"] * devices, "key": names[::-1],
                 "value": values[::-1]}  # fmt: skip
    tables = {
        "evaluations": pd.DataFrame(course),
        "estimates": pd.DataFrame(estimates),
        "clients": pd.DataFrame({"client": names}),
    }

    def vector() -> npt.NDArray[np.float64]:
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


@pytest.mark.parametrize(("options", "runs", "minutes"), [(FULL, 116, 45), (QUICK, 37, 5)])
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
    read = classifier("biased", 7, 50, None, TransferLimit("subset", 2))
    assert {(g.shared_link.slots, g.shared_link.overflow) for g in read.groups} == {(2, "subset")}


def test_devices_share_a_process_unless_they_share_a_link() -> None:
    without, limited = surrogate("biased", 1, 5), surrogate("biased", 1, 5, LITERAL)
    assert [group.devices_per_process for group in without.groups] == [3, 4, 3]
    assert [group.devices_per_process for group in limited.groups] == [1, 1, 1]


def test_without_data_the_study_says_what_stands_in_for_mnist() -> None:
    assert "MNIST" in STUDY.remarks(FULL)[0]
    assert not STUDY.remarks(Options(data="/data"))
    assert classifier("biased", 7, 50, "/data").task.data.directory == "/data"


# --- what is exact -------------------------------------------------------------------------------


def by_all_sets(limit: TransferLimit | None) -> tuple[list[float], float]:
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


@pytest.mark.parametrize("limit", [None, TransferLimit("collide", 3), TransferLimit("collide", 2)])
def test_shares_are_those_of_adding_up_all_sets_of_devices(limit: TransferLimit | None) -> None:
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
    assert len(claims) == (36 if options is FULL else 28)


def test_a_debiased_run_that_ends_where_the_biased_does_breaks_what_is_said_of_it() -> None:
    free = {**FINALS["unlimited"], "debiased": 0.065}
    broken = failing(judged(FULL, finals={**FINALS, "unlimited": free}))
    assert any("biased above debiased" in text for text in broken)
    assert any("debiased differs from unbiased" in text for text in broken)
    assert any("with the estimated ĉ it differs" in text for text in broken)
    assert not any("biased above unbiased" in text for text in broken)


def test_a_debiased_run_below_unbiased_differs_from_it_as_well() -> None:
    free = {**FINALS["unlimited"], "debiased": 0.03}
    broken = failing(judged(FULL, finals={**FINALS, "unlimited": free}))
    assert any("debiased differs from unbiased" in text for text in broken)


def test_a_limited_run_that_ends_between_debiased_and_biased_breaks_that_it_converges() -> None:
    limited = {"biased": 0.09, "debiased": 0.07}
    broken = failing(judged(FULL, finals={**FINALS, "collide-3": limited}))
    assert len(broken) == 1
    assert "still converges" in broken[0]


def test_a_surrogate_that_ends_elsewhere_breaks_its_claims_alone() -> None:
    broken = failing(judged(FULL, point=(0.6, 0.2, 0.2)))
    assert broken
    assert all(text.startswith("Surrogate") for text in broken)


@pytest.mark.parametrize("options", [FULL, QUICK])
def test_a_surrogate_midway_between_the_schemes_is_near_neither_end(options: Options) -> None:
    midway = tuple(np.mean([ends_at("biased"), FAIR], axis=0).tolist())
    broken = failing(judged(options, point=midway))
    assert any(text.startswith("Surrogate, biased: it ends near") for text in broken)
    assert any(text.startswith("Surrogate, debiased: it ends near") for text in broken)
    assert any("falling steps do not remove the bias" in text for text in broken)


def test_estimates_that_leave_out_empty_rounds_break_the_claim_about_them_alone() -> None:
    broken = failing(judged(FULL, shares=1 / (1 - exact().empty)))
    assert broken
    assert all("ĉ end near" in text for text in broken)


def test_errors_of_the_estimates_do_not_cancel_each_other() -> None:
    # c times the factors has the same sum as c.
    factors = np.repeat([1.2, 0.85, 1.1], SIZES)
    assert any("ĉ end near c" in text for text in failing(judged(FULL, shares=factors)))


@pytest.mark.parametrize(
    ("squares", "wrong"),
    [
        ({"biased": (1.6, 2.5)}, ["share of the bound", "expectation"]),
        ({"biased": (1.6, 0.2)}, ["not vacuous", "expectation", "biased does not go to zero"]),
        (
            {"debiased": (1.5, 1.1)},
            ["share of the bound", "expectation", "goes to zero", "goes below"],
        ),
        ({"debiased": (0.5, 0.25)}, ["debiased goes to zero"]),
        ({"debiased": (1.5, 0.05)}, ["not vacuous", "expectation"]),
    ],
)
def test_other_gradients_than_the_theorems_say_break_claims_about_them(
    squares: dict[str, tuple[float, float]], wrong: list[str]
) -> None:
    broken = failing(judged(FULL, squares={**SQUARES, **squares}))
    assert all(text.startswith("Theorem") for text in broken)
    assert all(any(part in text for text in broken) for part in wrong)
    assert len(broken) == len(wrong)


@pytest.mark.parametrize(
    ("arm", "finals", "words"),
    [
        ("collide-2", {"biased": 0.12, "debiased": 0.13}, "collide: biased ends above"),
        ("collide-2", {"biased": 0.5, "debiased": 0.06}, "collide: debiased does not arrive"),
        ("subset-2", {"biased": 0.063, "debiased": 0.06}, "subset: debiased still converges"),
        ("fedavg", {"unbiased": 0.04, "biased": 0.06, "debiased": 0.055}, "FedAvg"),
    ],
)
def test_other_losses_with_two_slots_or_local_steps_break_the_claim_about_them(
    arm: str, finals: dict[str, float], words: str
) -> None:
    (broken,) = failing(judged(FULL, finals={**FINALS, arm: finals}))
    assert words in broken


def test_fedavg_takes_as_many_steps_in_fewer_rounds() -> None:
    read = next(run.scenario for run in STUDY.runs(FULL) if run.part == "fedavg")
    assert (read.server.rounds, read.training.local_steps) == (300, 5)
    assert not read.training.gradient


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
    losses, _, shares, theorems = (table.frame for table in findings.tables)
    assert list(theorems["rounds"]) == [SHORT, 1500] * 2
    assert (theorems["bound"] < theorems["printed bound"]).all()
    assert len(losses) == len(SCHEMES) + 2 * len(LIMITS) + len(AVERAGED)
    assert len(shares) == 3 * (1 + len(LIMITS))
    assert set(shares[shares["below delta"] == "yes"]["limit"]) == {"collide-2"}
    row = losses.iloc[0]
    # .045 + .001 * (101 … 105)
    assert row["mean"] == pytest.approx(0.148)
    assert row["sd"] == pytest.approx(0.001 * 2.5**0.5)


def test_an_empty_round_keeps_the_loss_of_the_model_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = next(iter(STUDY.runs(QUICK)))
    made = result_of(run)
    course = pd.Series([1.0, 0.5, 0.3], index=[0, 100, 200])
    monkeypatch.setattr(made, "course", lambda measure: course)
    # Rounds 1 to 99 leave the loss at 1, 100 to 199 at .5, and 200 to 300 at .3.
    assert mean_loss(made) == pytest.approx((99 * 1 + 100 * 0.5 + 101 * 0.3) / 300)
    # The rounds begin with the models 0 to 299.
    assert mean_square_gradient(made) == pytest.approx((100 * 1 + 100 * 0.25 + 100 * 0.09) / 300)
    # It is .3 in the last fifth of the rounds.
    assert last_fifth(made) == pytest.approx(0.0)
