import pytest
from hypothesis import given
from hypothesis.strategies import booleans, sampled_from

from muster.client.session import ON_RUNNING_CLOCKS, TRANSITIONS, Event, Phase, Session
from muster.common.errors import LocalProtocolError


@given(sampled_from(Phase), sampled_from(Event), booleans())
def test_an_event_without_a_row_is_refused_and_changes_nothing(
    phase: Phase, event: Event, lockstep: bool
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


@pytest.mark.parametrize("phase", [p for p in Phase if p not in (Phase.AWAY, Phase.ENDED)])
def test_a_lost_connection_leads_away_from_every_phase_that_has_one(phase: Phase) -> None:
    assert TRANSITIONS[phase, Event.LOST] is Phase.AWAY


def test_in_lockstep_an_accepted_call_ends_in_an_update_or_an_abort() -> None:
    leads_out = {event for (phase, event) in TRANSITIONS if phase is Phase.TRAINING}
    # A lost connection is followed by another call for the same round; a goodbye ends the run.
    assert leads_out == {Event.TRAINED, Event.GAVE_UP, Event.LOST, Event.GOODBYE}
    assert ON_RUNNING_CLOCKS.keys() - TRANSITIONS.keys() == {(Phase.TRAINING, Event.OUTDATED)}


def test_nothing_follows_the_end() -> None:
    assert not [row for row in TRANSITIONS if row[0] is Phase.ENDED]


def test_a_round_and_a_round_that_is_asked_for_again() -> None:
    session = Session("a", lockstep=True)
    for event in (Event.WOKE, Event.ENROLLED, Event.CALLED, Event.TRAINED, Event.LOST):
        session.happen(event)
    for event in (Event.WOKE, Event.ENROLLED, Event.CALLED_AGAIN, Event.DELIVERED):
        session.happen(event)
    assert session.phase is Phase.IDLE
