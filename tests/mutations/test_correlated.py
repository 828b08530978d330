"""Defects that the study `correlated` finds."""

from collections.abc import Callable, Collection

import numpy as np
import pytest

from muster.common.shared_lines import SharedLine, granted
from muster.emulator.gateway import slots
from muster.emulator.scenario.population import population
from muster.server.aggregators.facts import Cohort
from muster.server.aggregators.importance import Importance
from muster.server.aggregators.values import State, Weighing
from muster.studies import Claim, StudyRun
from muster.studies.correlated import fleet

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

Judge = Callable[[str, Callable[[StudyRun], bool]], dict[str, Claim]]

ESTIMATES = "The fleet's ĉ end near c: |ĉ/c − 1|, the mean over the groups"
LIMITED = (
    "M_max = 3, collide: ĉ end near the c of the devices that get through: |ĉ/c − 1|, the mean "
    "over the groups"
)


def long_and_debiased(run: StudyRun) -> bool:
    labels = run.labels
    return run.part == "theorems" and labels["scheme"] == "debiased" and labels["rounds"] != 25


def limited_and_debiased(run: StudyRun) -> bool:
    return run.part == "fig2" and run.title.startswith("fig2 debiased collide-3")


def test_without_a_defect_the_claims_hold(judged: Judge) -> None:
    claims = judged("correlated", lambda run: long_and_debiased(run) or limited_and_debiased(run))
    assert claims[ESTIMATES].holds
    assert claims[LIMITED].holds


def test_estimates_that_leave_out_empty_rounds_are_found(
    judged: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    weigh = Importance.weigh

    def without_empty_rounds(self: Importance, cohort: Cohort, state: State) -> Weighing:
        # Every round with a device adds 1 to the sum over all devices.
        before = round(float(np.sum(state["sums"]))) if "sums" in state else 0
        return weigh(self, cohort._replace(round=before + 1), state)

    monkeypatch.setattr(Importance, "weigh", without_empty_rounds)
    claim = judged("correlated", long_and_debiased)[ESTIMATES]
    assert isinstance(claim.measured, float)
    assert claim.measured > 0.15
    assert not claim.holds


def test_slots_that_are_given_before_availability_is_known_are_found(
    judged: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All devices of a group want a slot in every round, so the middle group always collides."""
    residents = population(fleet.classifier("debiased", 1, 10, None))

    def too_early(
        shared: SharedLine, seed: int, group: str, round: int, active: Collection[str]
    ) -> frozenset[str]:
        everyone = [resident.client for resident in residents if resident.group == group]
        return granted(shared, seed, group, round, everyone).intersection(active)

    monkeypatch.setattr(slots, "granted", too_early)
    claim = judged("correlated", limited_and_debiased)[LIMITED]
    assert isinstance(claim.measured, float)
    assert claim.measured > 0.3
    assert not claim.holds
