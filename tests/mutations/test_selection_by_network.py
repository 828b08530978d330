"""Defects of shared links, deadlines and propensities, each of which breaks claims of the study."""

from collections.abc import Callable, Mapping

import pytest

from muster.common.lines import LinkModel
from muster.common.seeds import FloatArray, IntArray
from muster.common.shared_lines import BegunWork, SharedLine
from muster.server.aggregators.estimation import ParticipationModel
from muster.server.aggregators.facts import Cohort
from muster.server.rounds.cohort import WorkTime
from muster.server.rounds.round import Round
from muster.studies import Claim, StudyRun
from muster.studies.selection_by_network.fleet import FEDIPW, HALF, WITH_LINK
from muster.studies.selection_by_network.measures import FREE

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

Judge = Callable[[str, Callable[[StudyRun], bool]], dict[str, Claim]]

STUDY = "selection-by-network"
ADDS = "The deadline adds more than a tenth of the town's gap to the gap of FedIPW"
TOLD = "FedIPW that is told of the link avoids more than a third of the gap"
WEIGHS = "FedIPW that is told of the link weighs the valley by more"
CALLING_HALF = "Calling half as many devices avoids more than half of the gap"
CROWDS = "late in rounds in which more of it come"
"""Words of claims."""


def played(judged: Judge, *settings: str) -> Callable[[str], Claim]:
    """Play FedIPW without and with the deadline, and further rules with the deadline or changes.

    Returns a function that finds a claim by its words, and requires that it has a number.
    """
    wanted = (FEDIPW, *settings)

    def needed(run: StudyRun) -> bool:
        name = run.labels.get("change", run.labels["rule"])
        return name == FEDIPW if run.part == FREE else name in wanted

    claims: Mapping[str, Claim] = judged(STUDY, needed)

    def claim(words: str) -> Claim:
        (found,) = (found for text, found in claims.items() if words in text)
        assert not isinstance(found.measured, str), found.measured
        return found

    return claim


def test_without_a_defect_the_claims_hold(judged: Judge) -> None:
    claim = played(judged, WITH_LINK, HALF)
    for words in (ADDS, TOLD, WEIGHS, CALLING_HALF, CROWDS):
        assert claim(words).holds, words


def test_devices_that_decline_must_not_share_the_link(
    judged: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The devices that share a link are taken from the selection, before it is known which of them
    take part. So calling half as many no longer gets their updates through in time."""

    def times(self: Round) -> dict[str, WorkTime]:
        alone = {client: member.alone for client, member in self.cohort.items()}
        called = {c: time or WorkTime(self.number, 0.0, 0.0, 0.0) for c, time in alone.items()}
        shared = self.rules.sharing(called) if self.rules.sharing else called
        return {client: time for client, time in shared.items() if alone[client]}

    monkeypatch.setattr(Round, "times", times)
    claim = played(judged, HALF)
    assert not claim(CALLING_HALF).holds
    assert not claim(CROWDS).holds


def test_late_updates_must_not_be_folded(judged: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Round, "slow", lambda self: [])
    claim = played(judged)
    assert not claim(ADDS).holds
    assert not claim(CROWDS).holds


def test_the_participation_model_must_use_the_link(
    judged: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = ParticipationModel._features

    def without_the_link(
        self: ParticipationModel, cohort: Cohort, z: FloatArray, places: IntArray, x: FloatArray
    ) -> FloatArray:
        blind = z.copy()
        blind[:, cohort.population.columns.index("behind")] = 0
        return features(self, cohort, blind, places, x)

    monkeypatch.setattr(ParticipationModel, "_features", without_the_link)
    claim = played(judged, WITH_LINK)
    assert not claim(TOLD).holds
    assert not claim(WEIGHS).holds


def test_devices_must_share_the_rate_of_the_link(
    judged: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra_s = SharedLine.extra_s

    def alone(
        self: SharedLine,
        line: LinkModel,
        bytes_down: float,
        bytes_up: float,
        rank: int,
        n: int,
        begun: BegunWork,
        in_cells: Mapping[str, int],
    ) -> float:
        return extra_s(self, line, bytes_down, bytes_up, 0, 1, begun, {})

    monkeypatch.setattr(SharedLine, "extra_s", alone)
    claim = played(judged)
    assert not claim(ADDS).holds
    assert not claim(CROWDS).holds
