"""Part F of the study `fedipw`, on runs that never were."""

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from tests.studies.made import MadeResult

from muster.common.seeds import FloatArray
from muster.emulator.scenario.population import population
from muster.studies.claims import Claim
from muster.studies.fedipw.propositions import (
    ESTIMATED,
    HAJEK,
    LENGTHS,
    NAIVE,
    PULLED,
    RATE,
    SIZES,
    TRUE,
    PropositionMeasures,
    mean_update,
    proposition_claims,
    runs_of,
)
from muster.studies.fedipw.study import FedIpwStudy
from muster.studies.fedipw.weights import inclusion
from muster.studies.results import Results
from muster.studies.study import Options
from muster.studies.study_run import StudyRun

SEEDS = (7,)
PULLS = {NAIVE: 0.2, HAJEK: 0.02, TRUE: 0.0, ESTIMATED: 0.0}
"""The error of each rule's mean step along the direction of selection."""


def made(run: StudyRun, pull: float, wrong: float, ended: bool = True) -> MadeResult:
    """A result whose mean step has the error `pull`. If propensities are estimated, weights and
    mean step are wrong by `wrong`, divided by the root of N."""
    off = wrong / math.sqrt(run.scenario.devices) if run.labels["rule"] == ESTIMATED else 0.0
    result = MadeResult(run, _updates(run, off), ended=ended, vector=lambda: vector())

    def vector() -> FloatArray:
        step = mean_update(result) + pull * PULLED + off * np.eye(len(PULLED))[0]
        return np.asarray(step * max(LENGTHS) * RATE, np.float64)

    return result


def _updates(run: StudyRun, off: float) -> dict[str, pd.DataFrame]:
    """Rounds in which every enrolled device takes part, with X = 0."""
    clients = [resident.client for resident in population(run.scenario) if resident.enrolled]
    index = pd.MultiIndex.from_product([LENGTHS, clients])
    sent = index.to_frame(index=False, name=["round", "client"]).assign(outcome="folded")
    x = pd.DataFrame({"load": 0.0}, index=index)
    chances = inclusion(MadeResult(run, {"x": x}), sent[["round", "client"]])
    signs = np.where(np.arange(len(sent)) % 2, 1.0, -1.0)
    return {"x": x, "contributions": sent.assign(weight=np.exp(off * signs) / chances)}


def judged(
    pulls: dict[str, float] = PULLS,
    wrong: Callable[[int], float] = lambda devices: 1.0,
    ended: Callable[[StudyRun], bool] = lambda run: True,
) -> dict[str, Claim]:
    runs = [run for seed in SEEDS for run in runs_of(seed)]
    results = [
        made(run, pulls[str(run.labels["rule"])], wrong(run.scenario.devices), ended(run))
        for run in runs
    ]
    found = PropositionMeasures(Results(results))
    assert list(found.sweep()["devices"]) == list(SIZES)
    return {claim.claim: claim for claim in proposition_claims(found)}


def failing(claims: dict[str, Claim]) -> list[str]:
    return [text for text, claim in claims.items() if not claim.holds]


def test_the_full_form_has_more_seeds_for_the_mean_over_draws_of_enrollment() -> None:
    runs = [run for run in FedIpwStudy(kind="fedipw").runs(Options(seeds=5)) if run.part == "F"]
    assert len({run.title for run in runs}) == len(runs) == 5 * 8 + 15 * 3
    assert len([run for run in runs if run.labels["rule"] == ESTIMATED]) == 5 * len(SIZES)


def test_the_rule_of_the_propositions_divides_by_the_population() -> None:
    rules = {str(run.labels["rule"]): run.scenario.server.aggregator for run in runs_of(7)}
    normalised = {name: getattr(rule, "normalise", None) for name, rule in rules.items()}
    assert normalised[TRUE] == normalised[ESTIMATED] == "horvitz-thompson"
    assert normalised[HAJEK] == "hajek"


def test_all_claims_hold_in_the_expected_case() -> None:
    claims = judged()
    assert failing(claims) == []
    share = next(c for text, c in claims.items() if text.startswith("F: the Hájek form"))
    assert share.measured == pytest.approx(0.1, rel=1e-3)


def test_the_scatter_of_the_weights_is_that_of_their_logarithms() -> None:
    run = next(run for run in runs_of(7) if run.labels == {"rule": ESTIMATED, "devices": 200})
    found = PropositionMeasures(Results([made(run, 0.0, 2.0)])).scatter(200, max(LENGTHS))
    assert found[7] == pytest.approx(2.0 / math.sqrt(200), rel=0.01)


@pytest.mark.parametrize(
    ("claim", "rule", "pull"),
    [("F: Proposition 4.1", TRUE, 0.05), ("F: the Hájek form", HAJEK, -0.01)],
)
def test_a_step_with_another_error_breaks_the_claim(claim: str, rule: str, pull: float) -> None:
    broken = failing(judged({**PULLS, rule: pull}))
    assert [text.startswith(claim) for text in broken] == [True]


def test_estimates_that_do_not_become_better_break_two_claims() -> None:
    broken = failing(judged(wrong=math.sqrt))
    assert [text.split(",")[0].split(":")[1] for text in broken] == [
        " Proposition 4.2",
        " with N = 50",
    ]


def test_no_claim_holds_without_its_runs() -> None:
    claims = judged(ended=lambda run: run.labels["rule"] == NAIVE)
    assert failing(claims) == list(claims)
