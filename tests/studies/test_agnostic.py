"""The study `agnostic`, on runs that never were."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from tests.studies.made import MadeResult, statements

from muster.client.availability.k_of_n import KOfN
from muster.emulator.fleet.lives import task_of
from muster.emulator.planning.oracle import shares_of
from muster.emulator.scenario.population import population
from muster.studies import Claim, Findings, Options, Results, StudyRun
from muster.studies.agnostic.fleet import (
    AGNOSTIC,
    DECAY,
    DEVICES,
    LAST_PLACE,
    LINEAR,
    NORMALISED,
    OFTEN,
    PARTICIPANTS,
    QUADRATICS,
    QUADRATICS_DECAY,
    RULES,
    SELDOM,
    WEIGHTED,
    pictures,
    random_size,
    scenario,
    sharp,
)
from muster.studies.agnostic.known import (
    EQUAL,
    Known,
    inclusion_of_random_size,
    limits,
    raw,
    shares,
    shares_by_subsets,
    shares_of_random_size,
    skew,
    twice_counted,
)
from muster.studies.agnostic.measures import objective
from muster.studies.agnostic.study import AgnosticStudy

STUDY = AgnosticStudy(kind="agnostic")
QUICK = Options(quick=True, seeds=1)
FULL = Options(seeds=5)

Loss = Callable[[StudyRun, int], float]
Ends = Callable[[StudyRun, Known], npt.NDArray[np.float64]]

NORMALISED_ABOVE = {1000: 0.001, 100: 0.02, 50: 0.05, 30: 0.1, DECAY: 0.05, 5: 0.01}


def as_claimed(run: StudyRun, round: int) -> float:
    """Losses that fall with the rounds, as the claims say of the rules."""
    decay, rule = float(run.labels.get("decay", DECAY)), run.labels.get("rule", AGNOSTIC)
    over = {
        AGNOSTIC: 0.0,
        NORMALISED: NORMALISED_ABOVE[int(decay)],
        WEIGHTED: skew(shares(decay)) ** 2,
    }
    return 1.0 + 0.1 * run.scenario.seed + 1 / (1 + round) + over[str(rule)]


def weights_of(run: StudyRun) -> npt.NDArray[np.float64]:
    """The weights that the rule of a run has in the long run."""
    if run.part == "random size":
        return shares_of_random_size()
    if run.part == "quadratics":
        normalised = run.labels["rule"] == NORMALISED
        return (twice_counted if normalised else shares)(QUADRATICS_DECAY)
    return shares()


def near_p(run: StudyRun, known: Known) -> npt.NDArray[np.float64]:
    """At the minimiser of Σ p f, but for a distance that falls as T^-½: the gap of a squared loss
    falls as 1/T, and that of an absolute one as T^-½."""
    off = 3.0 / run.scenario.server.rounds**0.5 if run.part in ("rate", "linear") else 0.0
    place = known.minimiser(weights_of(run))
    place[0] += off
    return np.asarray(place)


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
    every = run.scenario.server.evaluate_every
    versions = list(range(0, rounds + 1, every))
    rows = [(version, name, loss(run, version))
            for version in versions for name in names[::-1]]  # fmt: skip
    tables = {
        "clients": pd.DataFrame({"client": names}),
        "evaluations": pd.DataFrame({"version": versions, "round": versions}),
        "device_evaluations": pd.DataFrame(rows, columns=["version", "client", "loss"]),
        "rounds": pd.DataFrame({"weight_sum": [factor * 0.1], "normaliser": [0.1]}),
    }
    return MadeResult(run, tables, ended=ended, vector=lambda: ends(run, Known(run.scenario)))


def found(options: Options, **made: Any) -> Findings:
    return STUDY.judge(Results([result_of(run, **made) for run in STUDY.runs(options)]), options)


def failing(findings: Findings) -> list[Claim]:
    return [claim for claim in statements(findings).values() if not claim.holds]


# --- what is run ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "runs", "minutes"), [(FULL, 5 * 53, 55), (QUICK, 30, 3)], ids=["full", "quick"]
)
def test_all_is_run_with_every_seed(options: Options, runs: int, minutes: float) -> None:
    planned = STUDY.runs(options)
    assert len({run.title for run in planned}) == len(planned) == runs
    assert sum(run.expected_s for run in planned) < 60 * minutes
    sizes = {run.scenario.devices for run in planned if run.part != "random size"}
    assert sizes == {DEVICES}


def test_full_form_has_the_seeds_and_levels_that_claims_ask_for() -> None:
    planned = STUDY.runs(FULL)
    assert {run.scenario.seed for run in planned} == {101, 102, 103, 104, 105}
    for part in ("linear", "pictures"):
        rules = {rule: [r for r in planned if (r.part, r.labels.get("rule")) == (part, rule)]
                 for rule in RULES}  # fmt: skip
        levels = {rule: {run.labels["decay"] for run in of} for rule, of in rules.items()}
        assert levels[AGNOSTIC] == levels[WEIGHTED] == levels[NORMALISED]
        assert len(levels[AGNOSTIC]) == 6
    for loss in ("squared", "absolute"):
        of_loss = {run.labels["rounds"] for run in planned if run.labels.get("loss") == loss}
        assert of_loss == {25, 50, 100, 200, 400, 800}


def test_losses_of_the_rate_are_compared_on_the_same_examples() -> None:
    first, second = (scenario(sharp(loss), 7, 50) for loss in ("squared", "absolute"))
    task = first.task.model_copy(update={"loss": "absolute"})
    assert second == first.model_copy(update={"task": task})


def test_devices_of_random_size_come_by_coins_of_their_own() -> None:
    often, seldom = random_size(101, 50).groups
    assert (often.count, seldom.count) == (OFTEN.size, SELDOM.size) == (1, 9)
    read = random_size(101, 50)
    np.testing.assert_allclose(
        shares_of(read, population(read)) / shares_of(read, population(read)).sum(),
        shares_of_random_size(),
    )


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
    assert rates[1] == LINEAR.rate(200) == pytest.approx(2 / 1000**0.5)


def test_rules_of_a_seed_differ_in_the_aggregator_alone() -> None:
    first, second = (scenario(LINEAR, 7, 50, rule) for rule in (AGNOSTIC, WEIGHTED))
    server = first.server.model_copy(update={"aggregator": second.server.aggregator})
    assert second == first.model_copy(update={"server": server})


def test_the_small_ball_differs_in_its_radius_alone() -> None:
    planned = STUDY.runs(Options(seeds=1))
    small = next(run.scenario for run in planned if run.part == "small ball")
    training = small.training.model_copy(update={"projection_radius": pictures(None).radius})
    assert small.model_copy(update={"training": training}) == scenario(pictures(None), 101, 200)
    assert small.training.projection_radius == pictures(None).small


def test_without_data_the_study_says_what_stands_in_for_mnist() -> None:
    assert "MNIST" in STUDY.remarks(FULL)[0]
    assert not STUDY.remarks(Options(data="/data"))
    assert scenario(pictures("/data"), 7, 50).task.data.directory == "/data"


# --- what is known -------------------------------------------------------------------------------


def test_quadratics_have_one_curvature_and_so_the_mean_of_minimisers_for_theirs() -> None:
    read = scenario(QUADRATICS, 3, 50)
    known = Known(read)
    alone = np.array([known.minimiser(row) for row in np.eye(DEVICES)])
    np.testing.assert_allclose(known.minimiser(shares()), shares() @ alone, atol=1e-6)
    step = np.array([0.3, -0.4])
    assert known.gap(known.minimiser(EQUAL) + step, EQUAL) == pytest.approx(0.125, rel=1e-5)


def test_minimisers_are_sorted_by_how_often_devices_come() -> None:
    known = Known(scenario(QUADRATICS, 3, 50))
    first = np.array([known.minimiser(row)[0] for row in np.eye(DEVICES)])
    line = np.polyfit(np.arange(DEVICES), first, 1)[0]
    assert line == pytest.approx(LAST_PLACE / (DEVICES - 1), rel=0.05)
    assert np.abs(first - first[0] - line * np.arange(DEVICES)).max() < 0.6  # its heterogeneity


def test_means_with_other_weights_are_far_from_each_other() -> None:
    for part, limit in limits().items():
        read = scenario(QUADRATICS, 3, 50) if part == "quadratics" else random_size(3, 50)
        known = Known(read)
        here = known.minimiser(limit.weights)
        for weights in limit.others.values():
            assert weights.sum() == pytest.approx(1)
            assert np.linalg.norm(known.minimiser(weights) - here) > 0.05


def test_devices_that_count_twice_weigh_nearly_as_the_squares_of_p() -> None:
    found, p = twice_counted(QUADRATICS_DECAY), shares(QUADRATICS_DECAY)
    squares = p**2 / (p**2).sum()
    assert found.sum() == pytest.approx(1)
    assert np.abs(found - squares).sum() < 0.05 < 0.3 < np.abs(found - p).sum()


def test_p_of_random_size_by_hand() -> None:
    # Two devices that come with the chance ½ each: alone ¼ each, together ¼, of ¾ in all.
    np.testing.assert_allclose(shares_by_subsets(np.array([0.5, 0.5])), [0.5, 0.5])
    # With 1 and ½: the first alone ½, together ½ of which each has half.
    np.testing.assert_allclose(shares_by_subsets(np.array([1.0, 0.5])), [0.75, 0.25])
    # The one comes with .9. It has E[1/(1 + B)] of such a round, B ~ Bin(9, .1).
    own = 0.9 * (1 - 0.9**10) / (10 * 0.1)
    assert shares_of_random_size()[0] == pytest.approx(own / (1 - 0.1 * 0.9**9))
    assert inclusion_of_random_size().sum() == pytest.approx(1.8)


def test_raw_weights_are_the_papers() -> None:
    assert raw(DECAY)[10] / raw(DECAY)[0] == pytest.approx(np.exp(-1))


def test_a_gap_is_what_the_losses_say() -> None:
    read = scenario(LINEAR, 3, 50)
    known = Known(read)
    opened = task_of(read, population(read)).open(DEVICES, 3)
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
    assert list(course.index) == [0, 60]


# --- how it is judged ----------------------------------------------------------------------------


@pytest.mark.parametrize("options", [FULL, QUICK], ids=["full", "quick"])
def test_runs_that_are_as_claimed_satisfy_every_claim(options: Options) -> None:
    findings = found(options)
    assert not failing(findings)
    assert (len(findings.claims), len(findings.checks)) == (26, 5)
    assert all(claim.why for claim in findings.claims)
    assert [figure.name for figure in findings.figures] == [
        "figure-1", "figure-2", "rates", "limits",
    ]  # fmt: skip
    losses = findings.tables[0].frame
    assert len(losses) == (3 * 12 + 2 if options is FULL else 3 * 7)
    assert (losses.loc[losses["rule"] == AGNOSTIC, "above agnostic"] == 0).all()


def texts_of_failing(**made: Any) -> list[str]:
    return [claim.claim for claim in failing(found(QUICK, **made))]


def test_rules_that_do_equally_well_fail_what_compares_them() -> None:
    texts = texts_of_failing(loss=lambda run, round: 1.0)
    assert len(texts) == 6 + 2 + 2 + 3 + 2
    assert all("equation 10" in text or "p_i / Σ p" in text for text in texts)


def test_a_rule_that_is_worse_only_at_the_end_is_not_consistently_worse() -> None:
    def late(run: StudyRun, round: int) -> float:
        ended = round == run.scenario.server.rounds
        return as_claimed(run, round) if ended else 1.0

    texts = texts_of_failing(loss=late)
    assert len(texts) == 3
    assert all("the share of the evaluated rounds" in text for text in texts)


def test_a_difference_that_grows_with_the_skew_fails_the_claim_of_a_middle_one() -> None:
    def growing(run: StudyRun, round: int) -> float:
        if run.part != "linear" or run.labels["rule"] != NORMALISED:
            return as_claimed(run, round)
        return 1.0 + 0.1 * run.scenario.seed + skew(shares(float(run.labels["decay"])))

    texts = [text for text in texts_of_failing(loss=growing) if "is larger" in text]
    assert texts == [
        "linear: with p_i / Σ p the difference at skew 0.70 is larger than at skew 1.53"
    ]


@pytest.mark.parametrize("part", ["quadratics", "random size"])
def test_an_average_with_other_weights_fails_the_claim_that_names_them(part: str) -> None:
    for other, weights in limits()[part].others.items():

        def ends(
            run: StudyRun, known: Known, weights: npt.NDArray[np.float64] = weights
        ) -> npt.NDArray[np.float64]:
            there = (run.part, run.labels.get("rule")) == (part, AGNOSTIC)
            return known.minimiser(weights) if there else near_p(run, known)

        texts = texts_of_failing(ends=ends)
        assert any(text.endswith(f"the mean of the b_i with {other}") for text in texts)
        assert all(text.startswith(f"{part}: the distance of the average") for text in texts)


def test_a_rule_with_p_that_does_not_count_twice_fails() -> None:
    def once(run: StudyRun, known: Known) -> npt.NDArray[np.float64]:
        quadratics = run.part == "quadratics"
        return known.minimiser(shares(QUADRATICS_DECAY)) if quadratics else near_p(run, known)

    (text,) = texts_of_failing(ends=once)
    assert "count twice" in text


def test_an_average_at_the_other_minimiser_fails_what_says_where_it_is() -> None:
    def equal(run: StudyRun, known: Known) -> npt.NDArray[np.float64]:
        return known.minimiser(EQUAL) + 1e-4 if run.part == "linear" else near_p(run, known)

    texts = texts_of_failing(ends=equal)
    assert len(texts) == 2
    assert all(text.startswith("linear: ") for text in texts)


@pytest.mark.parametrize(("power", "failed"), [(0.0, 2), (1.0, 2)])
def test_absolute_deviations_with_another_rate_fail(power: float, failed: int) -> None:
    def ends(run: StudyRun, known: Known) -> npt.NDArray[np.float64]:
        place = near_p(run, known)
        if run.labels.get("loss") == "absolute":
            place[0] += 30.0 / run.scenario.server.rounds**power
        return place

    texts = texts_of_failing(ends=ends)
    assert any(text.startswith("absolute deviations") for text in texts)
    assert all("slope" in text for text in texts)
    assert 1 <= len(texts) <= failed


def test_another_factor_than_the_one_worked_out_fails() -> None:
    assert len(texts_of_failing(factor=4.4)) == 1


def test_runs_that_failed_fail_their_claims_and_nothing_else() -> None:
    runs = STUDY.runs(QUICK)
    results = Results(
        [result_of(run, ended=run.part not in ("rate", "quadratics")) for run in runs]
    )
    findings = STUDY.judge(results, QUICK)
    missing = [claim.claim for claim in failing(findings)]
    assert len(missing) == 4 + 3
    assert all(text.startswith("quadratics") or "slope" in text for text in missing)


def test_a_study_of_which_no_run_ended_is_judged() -> None:
    findings = found(QUICK, ended=False)
    assert not any(claim.holds for claim in findings.claims)
    computed = [check for check in findings.checks if not check.seeds]
    assert len(computed) == 3
    assert all(check.holds for check in computed)
