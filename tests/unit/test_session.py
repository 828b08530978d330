import pytest
from hypothesis import given
from hypothesis.strategies import booleans, sampled_from

from muster.client.device.session import (
    ON_RUNNING_CLOCKS,
    TRANSITIONS,
    Session,
    SessionEvent,
    SessionPhase,
)
from muster.common.errors import LocalProtocolError


@given(sampled_from(SessionPhase), sampled_from(SessionEvent), booleans())
def test_an_event_without_a_row_is_refused_and_changes_nothing(
    phase: SessionPhase, event: SessionEvent, lockstep: bool
) -> None:
    session = Session("a", lockstep)
    session.phase = phase
    table = TRANSITIONS if lockstep else ON_RUNNING_CLOCKS
    if (phase, event) in table:
        assert session.happen(event) is table[phase, event]
    else:
        with pytest.raises(LocalProtocolError, match="a: "):
            session.happen(event)
        assert session.phase is phase


@pytest.mark.parametrize(
    "phase", [p for p in SessionPhase if p not in (SessionPhase.AWAY, SessionPhase.ENDED)]
)
def test_a_lost_connection_leads_away_from_every_phase_that_has_one(phase: SessionPhase) -> None:
    assert TRANSITIONS[phase, SessionEvent.LOST] is SessionPhase.AWAY


def test_in_lockstep_an_accepted_call_ends_in_an_update_or_an_abort() -> None:
    leads_out = {event for (phase, event) in TRANSITIONS if phase is SessionPhase.TRAINING}
    # A lost connection is followed by another call for the same round; a goodbye ends the run.
    assert leads_out == {
        SessionEvent.TRAINED,
        SessionEvent.GAVE_UP,
        SessionEvent.LOST,
        SessionEvent.GOODBYE,
    }
    assert ON_RUNNING_CLOCKS.keys() - TRANSITIONS.keys() == {
        (SessionPhase.TRAINING, SessionEvent.OUTDATED)
    }


def test_nothing_follows_the_end() -> None:
    assert not [row for row in TRANSITIONS if row[0] is SessionPhase.ENDED]


def test_a_round_and_a_round_that_is_asked_for_again() -> None:
    session = Session("a", lockstep=True)
    for event in (
        SessionEvent.WOKE,
        SessionEvent.ENROLLED,
        SessionEvent.CALLED,
        SessionEvent.TRAINED,
        SessionEvent.LOST,
    ):
        session.happen(event)
    for event in (
        SessionEvent.WOKE,
        SessionEvent.ENROLLED,
        SessionEvent.CALLED_AGAIN,
        SessionEvent.DELIVERED,
    ):
        session.happen(event)
    assert session.phase is SessionPhase.IDLE
