"""The study `agnostic`, on runs that never were."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from tests.unit.studies.made import MadeResult, statements

from muster.client.availability.k_of_n import KOfN
from muster.emulator.fleet.closed_forms import skew
from muster.emulator.fleet.oracle import shares_of
from muster.emulator.fleet.population import population
from muster.emulator.studies import Claim, Findings, Options, Results, StudyRun
from muster.emulator.studies.agnostic.fleet import (
    AGNOSTIC,
    DECAY,
    DEVICES,
    EQUAL,
    LINEAR,
    NORMALISED,
    PARTICIPANTS,
    QUADRATICS,
    RULES,
    WEIGHTED,
    LeastSquares,
    pictures,
    scenario,
    shares,
)
from muster.emulator.studies.agnostic.measures import objective
from muster.emulator.studies.agnostic.study import AgnosticStudy

STUDY = AgnosticStudy(kind="agnostic")
QUICK = Options(quick=True, seeds=1)
FULL = Options(seeds=5)

Loss = Callable[[StudyRun], float]
Ends = Callable[[StudyRun, LeastSquares], npt.NDArray[np.float64]]


def as_claimed(run: StudyRun) -> float:
    decay, rule = float(run.labels.get("decay", DECAY)), run.labels.get("rule", AGNOSTIC)
    over = {AGNOSTIC: 0.0, NORMALISED: 0.01, WEIGHTED: skew(shares(decay)) ** 2}
    return 1.0 + 0.1 * run.scenario.seed + over[str(rule)]


def near_p(run: StudyRun, known: LeastSquares) -> npt.NDArray[np.float64]:
    """At the minimiser of Σ p f, but for a distance that falls as T^-½: the gap falls as 1/T."""
    off = 0.0 if run.part == "quadratics" else 0.3 / run.scenario.server.rounds**0.5
    place = known.minimiser(shares())
    place[0] += off
    return place


def result_of(
    run: StudyRun,
    loss: Loss = as_claimed,
    ends: Ends = near_p,
    factor: float = 4.168,
    ended: bool = True,
) -> MadeResult:
    """A result with the given loss, model and factor."""
    rounds = run.scenario.server.rounds
    names = [resident.client for resident in population(run.scenario)]
    # In another order than the population's, as SQLite gives them.
    rows = [(version, name, 1.0 if version == 0 else loss(run))
            for version in (0, rounds) for name in names[::-1]]  # fmt: skip
    tables = {
        "clients": pd.DataFrame({"client": names}),
        "evaluations": pd.DataFrame({"version": [0, rounds], "round": [0, rounds]}),
        "device_evaluations": pd.DataFrame(rows, columns=["version", "client", "loss"]),
        "rounds": pd.DataFrame({"weight_sum": [factor * 0.1], "normaliser": [0.1]}),
    }
    return MadeResult(
        run, tables, ended=ended, vector=lambda: ends(run, LeastSquares(run.scenario))
    )


def found(options: Options, **made: Any) -> Findings:
    return STUDY.judge(Results([result_of(run, **made) for run in STUDY.runs(options)]), options)


def failing(findings: Findings) -> list[Claim]:
    return [claim for claim in statements(findings).values() if not claim.holds]


# --- what is run ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "runs", "minutes"), [(FULL, 5 * 34, 35), (QUICK, 23, 3)], ids=["full", "quick"]
)
def test_all_is_run_with_every_seed(options: Options, runs: int, minutes: float) -> None:
    planned = STUDY.runs(options)
    assert len({run.title for run in planned}) == len(planned) == runs
    assert sum(run.expected_s for run in planned) < 60 * minutes
    sizes = {run.scenario.devices for run in planned}
    assert sizes == {DEVICES}


def test_full_form_has_the_seeds_and_levels_that_claims_ask_for() -> None:
    planned = STUDY.runs(FULL)
    assert {run.scenario.seed for run in planned} == {101, 102, 103, 104, 105}
    for part in ("linear", "pictures"):
        rules = {rule: [r for r in planned if (r.part, r.labels.get("rule")) == (part, rule)]
                 for rule in RULES}  # fmt: skip
        levels = {rule: {run.labels["decay"] for run in of} for rule, of in rules.items()}
        assert levels[AGNOSTIC] == levels[WEIGHTED]
        assert len(levels[AGNOSTIC]) == 6
        assert levels[NORMALISED] == {DECAY}
    horizons = {run.labels["rounds"] for run in planned if run.part == "rate"}
    assert horizons | {200} == {25, 50, 100, 200, 400, 800}


def test_participation_is_the_papers() -> None:
    read = scenario(LINEAR, 101, 200)
    (group,) = read.groups
    assert isinstance(group.availability, KOfN)
    assert (group.count, group.availability.k, group.availability.decay) == (100, 10, 10.0)
    np.testing.assert_allclose(shares_of(read, population(read)), shares())
    assert shares().sum() == pytest.approx(1)
    weights = np.exp(-np.arange(DEVICES) / DECAY)
    assert np.abs(shares() - weights / weights.sum()).sum() > 0.1, "raw weights are not p"
    assert shares().max() < 1 / PARTICIPANTS


def test_the_rate_falls_as_one_over_the_root_of_all_steps() -> None:
    rates = [scenario(LINEAR, 101, rounds).training.learning_rate_at(1) for rounds in (50, 200)]
    assert rates[0] == pytest.approx(2 * rates[1])
    assert rates[1] == LINEAR.rate(200) == pytest.approx(1 / 1000**0.5)


def test_rules_of_a_seed_differ_in_the_aggregator_alone() -> None:
    first, second = (scenario(LINEAR, 7, 50, rule) for rule in (AGNOSTIC, WEIGHTED))
    server = first.server.model_copy(update={"aggregator": second.server.aggregator})
    assert second == first.model_copy(update={"server": server})


def test_the_small_ball_differs_in_its_radius_alone() -> None:
    planned = STUDY.runs(QUICK)
    small = next(run.scenario for run in planned if run.part == "small ball")
    training = small.training.model_copy(update={"projection_radius": pictures(None).radius})
    assert small.model_copy(update={"training": training}) == scenario(pictures(None), 101, 100)
    assert small.training.projection_radius == pictures(None).small


def test_without_data_the_study_says_what_stands_in_for_mnist() -> None:
    assert "MNIST" in STUDY.remarks(FULL)[0]
    assert not STUDY.remarks(Options(data="/data"))
    assert scenario(pictures("/data"), 7, 50).task.data.directory == "/data"


# --- what is known -------------------------------------------------------------------------------


def test_quadratics_have_one_curvature_and_so_the_mean_of_minimisers_for_theirs() -> None:
    read = scenario(QUADRATICS, 3, 50)
    known = LeastSquares(read)
    alone = np.array([known.minimiser(row) for row in np.eye(DEVICES)])
    np.testing.assert_allclose(known.minimiser(shares()), shares() @ alone, atol=1e-6)
    step = np.array([0.3, -0.4])
    assert known.gap(known.minimiser(EQUAL) + step, EQUAL) == pytest.approx(0.125, rel=1e-5)


def test_a_gap_is_what_the_losses_say() -> None:
    read = scenario(LINEAR, 3, 50)
    known, opened = LeastSquares(read), read.task.open(DEVICES, 3)
    theta = np.linspace(-1, 1, 10)

    def loss(theta: npt.NDArray[np.float64]) -> float:
        clients = map(opened.client, range(DEVICES))
        return float(shares() @ [np.mean((c.x @ theta - c.y) ** 2) / 2 for c in clients])

    gap = known.gap(theta, shares())
    assert gap == pytest.approx(loss(theta) - loss(known.minimiser(shares())), rel=1e-4)


def test_the_objective_weighs_devices_by_their_place_in_the_population() -> None:
    run = result_of(next(iter(STUDY.runs(QUICK))))
    table = run.account.device_evaluations
    clients = list(run.account.clients["client"])
    table["loss"] = [float(clients.index(name)) for name in table["client"]]
    course = objective(run, shares())
    assert course.iloc[-1] == pytest.approx(shares() @ np.arange(DEVICES))
    assert list(course.index) == [0, 100]


# --- how it is judged ----------------------------------------------------------------------------


@pytest.mark.parametrize("options", [FULL, QUICK], ids=["full", "quick"])
def test_runs_that_are_as_claimed_satisfy_every_claim(options: Options) -> None:
    findings = found(options)
    assert not failing(findings)
    assert (len(findings.claims), len(findings.checks)) == (13, 2)
    assert all(claim.why for claim in findings.claims)
    assert [figure.name for figure in findings.figures] == ["figure-1", "figure-2", "limits"]
    losses = findings.tables[0].frame
    assert len(losses) == (2 * 13 if options is FULL else 2 * 9) + 2
    assert (losses.loc[losses["rule"] == AGNOSTIC, "above agnostic"] == 0).all()


def test_rules_that_do_equally_well_fail_what_compares_them() -> None:
    texts = [claim.claim for claim in failing(found(QUICK, loss=lambda run: 1.0))]
    assert len(texts) == 5
    assert all("equation 10" in text or "p_i / Σ p" in text for text in texts)


def test_an_average_at_the_other_minimiser_fails_what_says_where_it_is() -> None:
    def equal(run: StudyRun, known: LeastSquares) -> npt.NDArray[np.float64]:
        return known.minimiser(EQUAL) + 1e-4

    texts = [claim.claim for claim in failing(found(QUICK, ends=equal))]
    assert [text for text in texts if "nearer" in text] == [
        f"{part}: the average is nearer to the minimiser of Σ p_i f_i than to that of Σ f_i/N"
        for part in ("linear", "quadratics")
    ]
    assert any("coordinate" in text for text in texts)
    assert any("slope" in text for text in texts), "a gap that does not fall"


def test_another_factor_than_the_one_worked_out_fails() -> None:
    assert len(failing(found(QUICK, factor=4.4))) == 1


def test_runs_that_failed_fail_their_claims_and_nothing_else() -> None:
    runs = STUDY.runs(QUICK)
    results = Results(
        [result_of(run, ended=run.part not in ("rate", "quadratics")) for run in runs]
    )
    findings = STUDY.judge(results, QUICK)
    missing = [claim.claim for claim in failing(findings)]
    assert len(missing) == 5
    assert all(text.startswith("quadratics") or "slope" in text for text in missing)


def test_a_study_of_which_no_run_ended_is_judged() -> None:
    findings = found(QUICK, ended=False)
    assert not any(claim.holds for claim in findings.claims)
    assert all(check.holds for check in findings.checks)  # they are computed, not run
