"""What the server enters of the answers of devices."""

import pytest

from muster.common.events import Event
from muster.common.exchange import Answer, Decision, Fingerprint, Identity, Key, Reason, Valuation
from muster.common.testing import ManualClock
from muster.server.account.pending_rows import PendingRows
from muster.server.fleet.devices import EnrolledDevice
from muster.server.fleet.fleet import Fleet
from muster.server.rounds.round import Round
from muster.server.rounds.rules import Rules
from muster.server.updates.answers import Answers
from muster.server.updates.round_updates import RoundUpdates


def tell(event: Event, at: float | None = None) -> None:
    """Take an event, which no test here asks for."""


def entered(valuation: Valuation, max_loss: float) -> Answer:
    """The answer of a device that accepts, as the round has it."""
    fleet, clock = Fleet([EnrolledDevice("a", "g", 0, 5)]), ManualClock()
    pack = fleet.enroll([Identity("a", 5)], Fingerprint("test", "test", "cpu", 1))
    round = Round(1, 0, Rules(lockstep=True))
    round.select(["a"])
    round.call("a")
    pending = PendingRows(12, fleet, {}, clock, 1.0)
    answers = Answers(pending, fleet, clock, tell, max_loss)
    said = Answer(Key("a", 1, 1), Decision.ACCEPT, valuation=valuation)
    answers.enter(pack, said, RoundUpdates(round))
    answer = round.cohort["a"].answer
    assert answer is not None
    return answer


@pytest.mark.parametrize("losses", [(5.1, 1.0), (1.0, 5.1), (-6.0, 1.0), (1e6, None)])
def test_a_valuation_with_a_loss_above_that_of_the_guard_counts_as_absent(
    losses: tuple[float, float | None],
) -> None:
    received, own = losses
    answer = entered(Valuation(0.5, 0.5, received_loss=received, own_loss=own), 5.0)
    assert (answer.decision, answer.reason) == (Decision.DECLINE, Reason.VALUATION)
    assert answer.valuation is None
    assert "expected at most 5 (server.guard.max_loss)" in answer.fault


@pytest.mark.parametrize("max_loss", [5.0, float("inf")])
def test_a_valuation_within_the_limit_is_kept(max_loss: float) -> None:
    valuation = Valuation(0.5, 0.5, received_loss=5.0, own_loss=None)
    answer = entered(valuation, max_loss)
    assert (answer.decision, answer.valuation) == (Decision.ACCEPT, valuation)
