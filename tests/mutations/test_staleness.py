"""Defects of modes and staleness, each of which breaks claims of the study."""

from collections.abc import Callable, Mapping

import pytest

from muster.server.rounds.modes.carrying import Carrying
from muster.server.rounds.modes.contract import Completion
from muster.server.rounds.modes.synchronous import Synchronous
from muster.server.rounds.round import Round
from muster.server.rounds.staleness import Polynomial
from muster.studies import Claim, StudyRun
from muster.studies.staleness.claims import EXPONENTS, LIMIT, LIMITED, change_of
from muster.studies.staleness.fleet import BUFFERED, OPPORTUNISTIC, OVER_SELECTED
from muster.studies.staleness.measures import APART_PART, CHANGED

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

Judge = Callable[[str, Callable[[StudyRun], bool]], dict[str, Claim]]

WEIGHT_ADDS = "The staleness weight of FedBuff"
REFUSING_ADDS = "Opportunistic rounds that refuse updates"
OVER_SELECTION_LOSES = "over-selection loses more than three quarters"
HALF = change_of("exponent", EXPONENTS[0])
"""Words of claims, and a change."""


def played(judged: Judge, *wanted: tuple[str, str, str]) -> Callable[[str], Claim]:
    """Play runs, each given by its part, method and change.

    Returns a function that finds a claim by its words, and requires that it has a number.
    """

    def needed(run: StudyRun) -> bool:
        return (run.part, run.labels["method"], run.labels.get("change", "")) in wanted

    claims: Mapping[str, Claim] = judged("staleness", needed)

    def claim(words: str) -> Claim:
        (found,) = (found for text, found in claims.items() if words in text)
        assert not isinstance(found.measured, str), found.measured
        return found

    return claim


WEIGHING = ((APART_PART, BUFFERED, ""), (CHANGED, BUFFERED, HALF))
REFUSING = ((APART_PART, OPPORTUNISTIC, ""), (CHANGED, OPPORTUNISTIC, LIMITED))
SELECTING = ((APART_PART, OVER_SELECTED, ""),)


def test_without_a_defect_the_claims_hold(judged: Judge) -> None:
    claim = played(judged, *WEIGHING, *REFUSING, *SELECTING)
    for words in (WEIGHT_ADDS, REFUSING_ADDS, OVER_SELECTION_LOSES):
        assert claim(words).holds, words


def test_the_staleness_weight_must_not_be_ignored(
    judged: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Polynomial, "factor", lambda self, staleness: 1.0)
    assert not played(judged, *WEIGHING)(WEIGHT_ADDS).holds


def test_staleness_must_count_from_the_base_version(
    judged: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every update counts as one of the newest version."""
    monkeypatch.setattr(Round, "staleness_of", lambda self, client: 0)
    assert not played(judged, *WEIGHING)(WEIGHT_ADDS).holds


def test_updates_beyond_the_goal_must_not_be_folded(
    judged: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_goal(self: Synchronous, goal: int | None, deadline_s: float | None) -> Completion:
        return Completion(goal=None, deadline_s=deadline_s)

    monkeypatch.setattr(Synchronous, "completion", without_goal)
    assert not played(judged, *SELECTING)(OVER_SELECTION_LOSES).holds


def test_an_update_that_is_not_too_stale_must_count(
    judged: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every opportunistic run refuses updates that are older than two versions."""
    monkeypatch.setattr(Carrying, "oldest", lambda self: LIMIT)
    assert not played(judged, *REFUSING)(REFUSING_ADDS).holds
