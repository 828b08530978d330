"""Defects of the estimated propensities, and the claims of the study `fedipw` that fail with them.

Weights that lack the X of the round still have the right mean, because X shapes no data. Only the
claim about single weights can see this defect.
"""

from copy import copy

import numpy as np
import pytest
from tests.mutations.conftest import Judge

from muster.common.seeds import FloatArray
from muster.server.aggregators.estimation import EnrollmentModel, Estimated, ParticipationModel
from muster.server.aggregators.facts import Cohort
from muster.server.aggregators.values import State
from muster.server.knowledge.participation import ParticipationHistory, Rows, Seen
from muster.studies import Claim, StudyRun

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

BETTER = "A: participation-only weights end further from the target than FedIPW"
TRACKS = (
    "A: FedIPW tracks the oracle: their gaps differ by at most a third of what the oracle removes"
)
FOLLOWS = (
    "A: the weights of FedIPW follow the true propensities, update by update: ln ρ scatters at "
    "most half as much as with participation-only weights"
)


def _of_fedipw(run: StudyRun) -> bool:
    rules = ("participation-ipw", "fedipw", "oracle-ipw")
    return run.part == "A" and run.labels["rule"] in rules


def _fails(claim: Claim) -> bool:
    """Whether a claim was judged, and does not hold."""
    assert isinstance(claim.measured, float), claim.measured
    return not claim.holds


def test_without_a_defect_the_claims_hold(judged: Judge) -> None:
    claims = judged("fedipw", _of_fedipw)
    assert all(claims[text].holds for text in (BETTER, TRACKS, FOLLOWS))


def test_participation_learned_on_all_devices_corrects_enrollment_twice(
    judged: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimate = ParticipationModel.estimate

    def on_everybody(
        self: ParticipationModel, cohort: Cohort, state: State, floor: float
    ) -> Estimated:
        return estimate(self, _with_everybody(cohort), state, floor)

    monkeypatch.setattr(ParticipationModel, "estimate", on_everybody)
    claims = judged("fedipw", _of_fedipw)
    assert _fails(claims[TRACKS])
    assert _fails(claims[FOLLOWS])


def test_enrollment_learned_among_the_enrolled_alone_corrects_nothing(
    judged: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimate = EnrollmentModel.estimate

    def among_the_enrolled(
        self: EnrollmentModel, cohort: Cohort, state: State, floor: float
    ) -> Estimated:
        # All of them are enrolled, so the propensity is near 1 whatever their Z is.
        population = copy(cohort.population)
        population.enrolled = np.ones_like(population.enrolled)
        return estimate(self, cohort._replace(population=population), state, floor)

    monkeypatch.setattr(EnrollmentModel, "estimate", among_the_enrolled)
    claims = judged("fedipw", _of_fedipw)
    assert _fails(claims[TRACKS])
    assert _fails(claims[FOLLOWS])


def test_covariates_of_the_previous_round_leave_weights_that_do_not_follow_the_propensities(
    judged: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter, last = ParticipationHistory.enter, "_x_of_the_last_round"

    def enter_late(self: ParticipationHistory, seen: list[Seen]) -> None:
        rows = list(seen)
        before = getattr(self, last, {})
        setattr(self, last, {row.place: row.x for row in rows})
        enter(self, [row._replace(x=before.get(row.place, row.x)) for row in rows])

    monkeypatch.setattr(ParticipationHistory, "enter", enter_late)
    claims = judged("fedipw", lambda run: _of_fedipw(run) and run.labels["rule"] != "oracle-ipw")
    assert _fails(claims[FOLLOWS])
    assert claims[BETTER].holds


def _with_everybody(cohort: Cohort) -> Cohort:
    """The cohort of a server that takes devices outside the enrollment for enrolled ones that did
    not take part. Their X is drawn as that of the others is."""
    history, outside = cohort.participation, np.flatnonzero(~cohort.population.enrolled)
    pooled = history.pooled()
    rounds = len(pooled.places) // len(history.latest.places)
    places = np.tile(outside, rounds)
    x = _normal(len(places), len(history.columns))
    added = Rows(places, np.zeros(len(places), np.bool_), x, np.zeros(len(places)))
    joined = [np.concatenate(parts) for parts in zip(pooled, added, strict=True)]
    everybody = ParticipationHistory(history.columns)
    everybody.latest = history.latest
    everybody._rounds = [Rows(*joined)]
    return cohort._replace(participation=everybody)


def _normal(rows: int, columns: int) -> FloatArray:
    return np.random.default_rng(1).standard_normal((rows, columns))
