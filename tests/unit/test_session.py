import pytest
from hypothesis import given
from hypothesis.strategies import sampled_from

from muster.client.session import TRANSITIONS, Event, Phase, Session
from muster.common.errors import LocalProtocolError


@given(sampled_from(Phase), sampled_from(Event))
def test_an_event_without_a_row_is_refused_and_changes_nothing(phase: Phase, event: Event) -> None:
    session = Session("a")
    session.phase = phase
    if (phase, event) in TRANSITIONS:
        assert session.happen(event) is TRANSITIONS[phase, event]
    else:
        with pytest.raises(LocalProtocolError, match="a: "):
            session.happen(event)
        assert session.phase is phase


@pytest.mark.parametrize("phase", [p for p in Phase if p not in (Phase.AWAY, Phase.ENDED)])
def test_a_lost_connection_leads_away_from_every_phase_that_has_one(phase: Phase) -> None:
    assert TRANSITIONS[phase, Event.LOST] is Phase.AWAY


def test_nothing_follows_the_end() -> None:
    assert not [row for row in TRANSITIONS if row[0] is Phase.ENDED]


def test_a_round_and_a_round_that_is_asked_for_again() -> None:
    session = Session("a")
    for event in (Event.WOKE, Event.ENROLLED, Event.CALLED, Event.TRAINED, Event.LOST):
        session.happen(event)
    for event in (Event.WOKE, Event.ENROLLED, Event.CALLED_AGAIN, Event.DELIVERED):
        session.happen(event)
    assert session.phase is Phase.IDLE
