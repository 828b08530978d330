import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from tests.studies.made import MadeResult, statements

from muster.common.seeds import FloatArray
from muster.emulator.fleet.lives import task_of
from muster.emulator.scenario.population import population
from muster.studies.claims import Claim
from muster.studies.fedipw.fleet import (
    BY_MEANS,
    EFFECTS,
    LARGE,
    NOISES,
    OPPOSED,
    RULES,
    SMALL,
    STRENGTHS,
    intercept,
    scenario,
)
from muster.studies.fedipw.measures import FedIpwMeasures
from muster.studies.fedipw.study import FedIpwStudy, TrainingByN
from muster.studies.fedipw.target import PopulationLoss
from muster.studies.fedipw.two_groups import GAMMA, RIDGE, WRONG, promised, two_devices
from muster.studies.fedipw.weights import inclusion, weight_error
from muster.studies.results import Results
from muster.studies.study import Options
from muster.studies.study_run import StudyRun

STUDY = FedIpwStudy(kind="fedipw")
QUICK = Options(quick=True, seeds=2)


def test_every_rule_is_run_with_every_strength_and_every_error_of_the_means() -> None:
    runs = STUDY.runs(Options(seeds=5))
    labels = [(run.part, *sorted(run.labels.items()), run.scenario.seed) for run in runs]
    assert len(labels) == len({str(label) for label in labels})
    assert len(runs) == len({run.title for run in runs})
    parts = {part: [run for run in runs if run.part == part] for part in "ABCDE"}
    assert len(parts["A"]) == 5 * len(RULES)
    assert len(parts["B"]) == 5 * len(RULES) * (len(STRENGTHS) - 1)
    assert len(parts["C"]) == 5 * len(("signs", "first", "opposed", "opposed, calibrated"))
    assert len(parts["D"]) == 5 * len(NOISES) + 35 * len(("participation-ipw", SMALL, LARGE))
    assert len(parts["E"]) == 5 * len(("fedavg", "oracle-ipw")) + len(WRONG)
    assert sum(run.expected_s for run in runs) < 2 * 3600
    quick = STUDY.runs(Options(quick=True, seeds=STUDY.quick_seeds))
    assert sum(run.expected_s for run in quick) < 2 * 180


def test_every_effect_has_the_length_1_and_one_is_reversed() -> None:
    assert [np.linalg.norm(effect) for effect in EFFECTS.values()] == pytest.approx([1.0] * 3)
    read = scenario(40, 5, 7, RULES["fedavg"], effects=OPPOSED)
    theta = [
        np.array(task_of(read, population(read)).covariates[name])  # type: ignore[attr-defined]
        for name in EFFECTS
    ]
    assert theta[0] == pytest.approx(-np.array(EFFECTS["z1"]))
    assert theta[1] == pytest.approx(np.array(EFFECTS["z2"]))


def test_what_is_compared_differs_in_the_rule_alone() -> None:
    first, second = (scenario(40, 5, 7, RULES[rule]) for rule in ("fedavg", "fedipw"))
    server = {"server": first.server}
    assert second.model_copy(update=server) == first
    lives = [population(read) for read in (first, second)]
    assert lives[0] == lives[1]


def test_stronger_enrollment_bias_enrolls_as_many() -> None:
    shares = [
        np.mean(
            [
                resident.propensity
                for resident in population(scenario(4000, 5, 1, RULES["fedavg"], s))
            ]
        )
        for s in STRENGTHS
    ]
    assert shares == pytest.approx([0.4] * 3, abs=0.02)
    assert intercept(0.5, 2.0) == pytest.approx(0.0, abs=1e-9)


def test_means_with_errors_are_all_that_is_told() -> None:
    read = scenario(40, 5, 7, BY_MEANS, noise=0.25)
    assert (read.server.information, read.server.moments_noise) == ("limited", 0.25)


def test_the_least_loss_is_below_that_of_any_other_parameters() -> None:
    read = scenario(30, 5, 7, RULES["fedavg"])
    task = task_of(read, population(read)).open(30, 7)
    target = PopulationLoss(read)
    assert target.loss(np.zeros(5)) == pytest.approx(task.metrics(task.module())["loss"])
    assert target.least < target.loss(np.zeros(5))


def test_the_gradients_and_the_curvature_of_the_target_are_those_of_its_loss() -> None:
    target, theta, step = PopulationLoss(scenario(30, 5, 7, RULES["fedavg"])), np.full(5, 0.2), 1e-4

    def along(direction: FloatArray, at: FloatArray) -> float:
        """The second derivative of the loss."""
        ahead, behind = target.loss(at + step * direction), target.loss(at - step * direction)
        return (ahead - 2 * target.loss(at) + behind) / step**2

    least = target.curvature(target.optimum)
    curvatures = [along(direction, target.optimum) for direction in np.eye(5)]
    assert 0 < least <= min(curvatures) + 1e-6
    assert target.curvature(theta) <= least
    # The mean of the squared lengths is at least the squared length of the mean gradient.
    slopes = [
        (target.loss(theta + step * e) - target.loss(theta - step * e)) / (2 * step)
        for e in np.eye(5)
    ]
    assert target.heterogeneity(theta) >= np.dot(slopes, slopes)


def test_right_weights_have_no_error_whatever_their_scale() -> None:
    chances = np.array([0.5, 0.25, 0.1])
    assert weight_error(7 / chances, chances) == pytest.approx((0, 0, 0), abs=1e-12)


def test_the_error_of_weights_counts_the_devices_that_an_update_stands_for() -> None:
    # Equal weights; updates that stand for 2 and 8 of 10 devices. The ratios are proportional to
    # p, so with the mean 1 over the devices they are 5/2 and 5/8.
    error = weight_error(np.ones(2), np.array([1 / 2, 1 / 8]))
    assert error.root_mean_square == pytest.approx(math.sqrt(0.2 * 1.5**2 + 0.8 * 0.375**2))
    assert error.largest == pytest.approx(1.5)
    assert error.scatter == pytest.approx(math.log(4) / 2)


def test_the_inclusion_of_an_update_depends_on_the_x_of_its_round() -> None:
    run = StudyRun("A", {}, scenario(40, 5, 7, RULES["fedavg"]), 1.0)
    resident = population(run.scenario)[3]
    index = pd.MultiIndex.from_tuples([(1, resident.client), (2, resident.client)])
    result = MadeResult(run, {"x": pd.DataFrame({"load": [-1.0, 2.0]}, index=index)})
    updates = pd.DataFrame({"round": [1, 2], "client": [resident.client] * 2})
    took_part = inclusion(result, updates) / resident.propensity
    assert np.diff(np.log(took_part / (1 - took_part))) == pytest.approx(3.0)


def test_two_devices_with_wrong_weights_have_the_gap_of_the_proposition() -> None:
    read = two_devices(7, 0.5)
    opened = task_of(read, population(read)).open(2, 7)
    best, limit = opened.optimum(), opened.optimum([0.75, 0.25])  # type: ignore[attr-defined]
    assert promised(0.5) == pytest.approx((1 + RIDGE) / 2 * np.sum((limit - best) ** 2))
    assert promised(0.5) == pytest.approx(0.125 * np.dot(GAMMA, GAMMA) / (1 + RIDGE))


# --- the judgement on made results ---------------------------------------------------------------

GAPS = {"fedavg": 0.09, "participation-ipw": 0.04, "fedipw": 0.006, "oracle-ipw": 0.005}
MOMENTS = {"signs": 0.012, "first": 0.03}
OPPOSED_GAPS = {"participation-ipw": 0.01, "calibrated": 0.02}
DISTANCES = {0.0: 0.15, SMALL: 0.2, LARGE: 0.8}
POWERS = {"fedavg": 1.0, "participation-ipw": 0.6, "fedipw": 0.05, "oracle-ipw": 0.0}
"""The weights are 1/p̂ with p̂ = p^(1 − power)."""


def gap_of(run: StudyRun) -> float:
    labels = run.labels
    if run.part == "D":
        return 0.005
    if "effects" in labels:
        return OPPOSED_GAPS[str(labels["rule"])]
    if "moments" in labels:
        return MOMENTS[str(labels["moments"])]
    return GAPS[str(labels["rule"])] * float(labels["strength"])


def made(run: StudyRun, gap: float, power: float = 0.0, ended: bool = True) -> MadeResult:
    """A result with the given gap, and with weights that are wrong by a power of p."""
    rounds = run.scenario.server.rounds
    distance = DISTANCES.get(float(run.labels.get("noise", -1)), 0.5)
    evaluations = pd.DataFrame(
        {
            "round": range(1, rounds + 1),
            "loss": PopulationLoss(run.scenario).least + gap if run.part != "E" else gap,
            "metrics": f'{{"distance": {distance}}}',
        }
    )
    made_rounds = pd.DataFrame({"effective_size": [10.0], "folded": [20]})
    tables = {"evaluations": evaluations, "rounds": made_rounds}
    if run.part == "A":
        tables |= _updates(run, power)
    return MadeResult(run, tables, ended=ended, vector=lambda: np.zeros(5))


def _updates(run: StudyRun, power: float) -> dict[str, pd.DataFrame]:
    """One round in which every enrolled device takes part, with X = 0."""
    clients = [resident.client for resident in population(run.scenario) if resident.enrolled]
    index = pd.MultiIndex.from_product([[1], clients])
    x = pd.DataFrame({"load": 0.0}, index=index)
    sent = pd.DataFrame({"round": 1, "client": clients, "outcome": "folded"})
    chances = inclusion(MadeResult(run, {"x": x}), sent[["round", "client"]])
    return {"x": x, "contributions": sent.assign(weight=chances ** (power - 1))}


def judged(
    change: Callable[[StudyRun, float], float] = lambda run, gap: gap,
    powers: dict[str, float] = POWERS,
    ended: Callable[[StudyRun], bool] = lambda run: True,
) -> dict[str, Claim]:
    """The claims on made results of small runs, whose gaps are changed."""
    results = []
    for planned in STUDY.runs(QUICK):
        if planned.part == "E":
            run, gap = planned, _e_loss(planned)
        else:
            run, gap = _small(planned), gap_of(planned)
        power = powers.get(str(run.labels["rule"]), 0.0)
        results.append(made(run, change(run, gap), power, ended(run)))
    return statements(STUDY.judge(Results(results), QUICK))


def _small(run: StudyRun) -> StudyRun:
    read = run.scenario
    groups = [read.groups[0].model_copy(update={"count": 40})]
    scenario_ = read.model_copy(update={"groups": groups})
    return StudyRun(run.part, run.labels, scenario_, run.expected_s)


def _e_loss(run: StudyRun) -> float:
    """The loss of a run of part E that leaves the gap of the proposition, or none."""
    read = run.scenario
    opened = task_of(read, population(read)).open(read.devices, read.seed)
    theta = opened.optimum()  # type: ignore[attr-defined]
    # Both groups are ‖γ‖ away from θ₀ = (1 + ridge)·θ*.
    start = np.sum(np.square(GAMMA)) / 2 + (RIDGE**2 + RIDGE) / 2 * np.sum(theta**2)
    left = 0.01 if run.labels["rule"] == "oracle-ipw" else 1.0
    return float(start + left * promised(float(run.labels["epsilon"])))


def test_all_claims_hold_in_the_expected_case() -> None:
    assert {text: claim.measured for text, claim in judged().items() if not claim.holds} == {}


def _rule(rule: str, factor: float, part: str = "A") -> Callable[[StudyRun, float], float]:
    def change(run: StudyRun, gap: float) -> float:
        meant = run.part == part and run.labels["rule"] == rule and "moments" not in run.labels
        return gap * factor if meant else gap

    return change


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("claim", "change"),
    [
        ("A: FedAvg ends further", _rule("fedavg", 0.4)),
        ("A: FedAvg ends further", _rule("participation-ipw", 3.0)),
        ("A: participation-only weights end further from the target than F", _rule("fedipw", 9)),
        ("A: FedIPW tracks the oracle", _rule("fedipw", 5.0)),
        ("A: FedIPW tracks the oracle", _rule("oracle-ipw", 6.0)),
        ("A: the gap of FedAvg is within the bound", _rule("fedavg", 50.0)),
        ("A: this bound is not vacuous: FedAvg", _rule("fedavg", 0.001)),
        ("A: the gap of participation-only is within", _rule("participation-ipw", 50.0)),
        ("A: this bound is not vacuous: participation", _rule("participation-ipw", 0.001)),
        ("B: with strength 0.5 too, FedAvg ends further", _rule("fedavg", 0.1, "B")),
        ("B: the gap of FedAvg grows", _rule("fedavg", 5, "B")),
        ("B: the gap of participation-only", _rule("participation-ipw", 5, "B")),
        ("C: calibration on the exact means", _rule("calibrated", 7, "D")),
        ("C: if the covariates have opposed effects", _rule("calibrated", 0.3, "C")),
        ("E: two devices with weights wrong by 0.9", _rule("weighted-normalised", 1.001, "E")),
        ("E: two groups", _rule("fedavg", 1.5, "E")),
        ("E: the oracle's weights", _rule("oracle-ipw", 1.5, "E")),
    ],
)
def test_a_claim_fails_if_the_gap_of_a_rule_is_another(
    claim: str, change: Callable[[StudyRun, float], float]
) -> None:
    found = [value for text, value in judged(change).items() if text.startswith(claim)]
    assert [value.holds for value in found] == [False]
    assert isinstance(found[0].measured, float)


def test_weights_that_do_not_follow_the_propensities_fail_though_the_gaps_are_right() -> None:
    claims = judged(powers={**POWERS, "fedipw": 0.5})
    failed = [text for text, claim in claims.items() if not claim.holds]
    assert len(failed) == 1
    assert failed[0].startswith("A: the weights of FedIPW follow the true propensities")


def test_the_oracle_whose_weights_are_not_the_inverse_propensities_fails_a_check() -> None:
    claims = judged(powers={**POWERS, "oracle-ipw": 0.01})
    assert not claims["A: ρ is 1 for every update that the oracle weighs"].holds


def test_no_claim_holds_without_its_run() -> None:
    claims = judged(ended=lambda run: run.labels["rule"] != "fedipw")
    for text, claim in claims.items():
        assert claim.holds == ("FedIPW" not in text), text


def test_means_are_those_over_the_seeds() -> None:
    study, options = TrainingByN(kind="fedipw"), Options(seed=1, seeds=2)
    results = Results([made(_small(run), 0.01 * run.scenario.seed) for run in study.runs(options)])
    findings = study.judge(results, options)
    assert not findings.claims
    assert [len(table.frame) for table in findings.tables] == [4]
    means = FedIpwMeasures(results, options).means_table()
    assert means["gap"].tolist() == pytest.approx([0.015, 0.015])
    assert means["first gap"].tolist() == pytest.approx([0.015, 0.015])
    assert means["seeds"].tolist() == [2, 2]
