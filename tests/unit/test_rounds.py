from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import sampled_from

from muster.common.errors import LocalProtocolError
from muster.common.exchange import Answer, Decision, Key, Outcome, Reason, Update
from muster.server.rounds.cohort import WorkTime
from muster.server.rounds.phases import TRANSITIONS, RoundEvent, RoundPhase
from muster.server.rounds.round import Round
from muster.server.rounds.rules import Rules

LOCKSTEP = Rules(lockstep=True)
WALL = Rules(lockstep=False)


def update(key: Key, checksum: bytes = b"body", modelled_s: float = 0.0) -> Update:
    return Update(key, 1, checksum, 4, train_s=0.0, fetch_s=0.0, loss=0.0, modelled_s=modelled_s)


def opened(*clients: str, rules: Rules = LOCKSTEP, number: int = 3) -> Round:
    round_ = Round(number, base_version=2, rules=rules)
    round_.select(clients)
    for client in clients:
        round_.call(client)
    return round_


def accept(round_: Round, client: str, modelled_s: float = 0.0, attempt: int = 1) -> Outcome:
    key = Key(client, round_.number, attempt)
    round_.answer(Answer(key, Decision.ACCEPT, modelled_s))
    return round_.receive(update(key, modelled_s=modelled_s)).outcome


def phase_of(round_: Round) -> RoundPhase:
    """Read anew: mypy takes an attribute for what it was when it was last compared."""
    return round_.phase


def decline(round_: Round, client: str) -> None:
    round_.answer(Answer(Key(client, round_.number, 1), Decision.DECLINE, reason=Reason.BUSY))


@given(sampled_from(RoundPhase), sampled_from(RoundEvent))
def test_an_event_without_a_row_is_refused_and_changes_nothing(
    phase: RoundPhase, event: RoundEvent
) -> None:
    round_ = Round(1, 0, LOCKSTEP)
    round_.phase = phase
    if (phase, event) in TRANSITIONS:
        assert round_.happen(event) is TRANSITIONS[phase, event]
    else:
        with pytest.raises(LocalProtocolError, match="cannot happen"):
            round_.happen(event)
        assert round_.phase is phase


@given(st.lists(sampled_from(RoundEvent), max_size=12))
def test_a_round_is_committed_only_after_it_was_folded(events: list[RoundEvent]) -> None:
    round_ = Round(1, 0, LOCKSTEP)
    seen = []
    for event in events:
        if (round_.phase, event) in TRANSITIONS:
            round_.happen(event)
            seen.append(event)
    if round_.phase is RoundPhase.DONE:
        assert seen.index(RoundEvent.FOLDED) < seen.index(RoundEvent.COMMITTED)


def test_a_round_closes_when_every_device_has_spoken() -> None:
    round_ = opened("a", "b")
    assert accept(round_, "a") is Outcome.ACCEPTED
    assert phase_of(round_) is RoundPhase.COLLECTING
    decline(round_, "b")
    assert phase_of(round_) is RoundPhase.FOLDING
    assert round_.counted() == ["a"]


def test_a_round_without_a_cohort_is_folded_as_empty() -> None:
    round_ = opened()
    assert phase_of(round_) is RoundPhase.FOLDING
    assert round_.counted() == []


def test_on_the_wall_clock_the_goal_closes_the_round_and_the_rest_is_late() -> None:
    round_ = opened("a", "b", "c", rules=Rules(lockstep=False, goal=2))
    accept(round_, "c")
    accept(round_, "a")
    assert phase_of(round_) is RoundPhase.FOLDING
    receipt = round_.receive(update(Key("b", 3, 1)))
    assert (receipt.outcome, receipt.reason) == (Outcome.LATE, Reason.GOAL_REACHED)
    assert sorted(round_.counted()) == ["a", "c"]


def test_on_the_wall_clock_what_comes_after_the_deadline_is_late() -> None:
    round_ = opened("a", "b", rules=WALL)
    accept(round_, "a")
    round_.happen(RoundEvent.DEADLINE_PASSED)
    receipt = round_.receive(update(Key("b", 3, 1)))
    assert (receipt.outcome, receipt.reason) == (Outcome.LATE, Reason.DEADLINE)


def test_a_refused_update_that_comes_again_missed_no_deadline() -> None:
    for rules in (LOCKSTEP, WALL):
        round_ = opened("a", rules=rules)
        round_.answer(Answer(Key("a", 3, 1), Decision.ACCEPT))
        round_.refuse(update(Key("a", 3, 1)), Reason.NORM, "too large")
        assert phase_of(round_) is RoundPhase.FOLDING
        round_.call("a")
        receipt = round_.receive(update(Key("a", 3, 2)))
        assert (receipt.outcome, receipt.reason) == (Outcome.LATE, Reason.ROUND_CLOSED)


def test_in_lockstep_the_deadline_is_compared_with_the_modelled_duration() -> None:
    round_ = opened("slow", "quick", rules=Rules(lockstep=True, deadline_s=30))
    assert accept(round_, "slow", modelled_s=30.1) is Outcome.LATE
    assert accept(round_, "quick", modelled_s=30.0) is Outcome.ACCEPTED
    assert round_.counted() == ["quick"]


def test_an_update_may_overtake_its_answer() -> None:
    round_ = opened("a", "b", rules=Rules(lockstep=True, deadline_s=30))
    late = round_.receive(update(Key("a", 3, 1), modelled_s=31.0))
    assert late.outcome is Outcome.LATE
    assert round_.receive(update(Key("b", 3, 1), modelled_s=29.0)).outcome is Outcome.ACCEPTED
    assert all(member.answer is not None for member in round_.cohort.values())


def test_an_answer_that_was_overtaken_still_tells_what_it_was_to_tell() -> None:
    round_ = opened("a", "b", rules=WALL)
    assert round_.receive(update(Key("a", 3, 1))).outcome is Outcome.ACCEPTED
    assert round_.answer(Answer(Key("a", 3, 1), Decision.DECLINE, x=(1.5,))) is None
    found = round_.cohort["a"].answer
    assert found is not None
    assert (found.decision, found.x) == (Decision.ACCEPT, (1.5,))
    round_.answer(Answer(Key("a", 3, 1), Decision.ACCEPT, x=(2.5,)))
    assert round_.cohort["a"].answer == found, "it has spoken"
    assert round_.counted() == ["a"]


def test_in_lockstep_a_round_waits_for_covariates_that_an_update_overtook() -> None:
    rules = Rules(lockstep=True, deadline_s=30, awaits_answers=True)
    round_ = opened("a", "b", rules=rules)
    for client, modelled_s in {"a": 31.0, "b": 29.0}.items():
        round_.receive(update(Key(client, 3, 1), modelled_s=modelled_s))
    assert phase_of(round_) is RoundPhase.COLLECTING
    assert round_.expects("a")
    for client in "ab":
        round_.answer(Answer(Key(client, 3, 1), Decision.ACCEPT, x=(1.5,)))
    assert phase_of(round_) is RoundPhase.FOLDING
    assert round_.counted() == ["b"]


def test_in_lockstep_a_round_waits_for_covariates_that_a_refused_update_overtook() -> None:
    round_ = opened("a", rules=Rules(lockstep=True, awaits_answers=True))
    round_.refuse(update(Key("a", 3, 1)), Reason.LENGTH, "")
    assert round_.expects("a")
    round_.answer(Answer(Key("a", 3, 1), Decision.ACCEPT, x=(1.5,)))
    assert phase_of(round_) is RoundPhase.FOLDING
    answer = round_.cohort["a"].answer
    assert answer is not None
    assert answer.x == (1.5,)


def test_a_device_that_died_before_it_answered_counts_once_when_it_is_called_again() -> None:
    round_ = opened("a", rules=Rules(lockstep=True, awaits_answers=True))
    assert round_.receive(update(Key("a", 3, 1))).outcome is Outcome.ACCEPTED
    assert accept(round_, "a", attempt=round_.call("a").attempt) is Outcome.ACCEPTED
    assert phase_of(round_) is RoundPhase.FOLDING
    assert round_.counted() == ["a"]


@given(st.permutations(["a", "b", "c", "d"]))
def test_in_lockstep_the_first_k_are_by_modelled_duration_whatever_arrives_first(
    order: list[str],
) -> None:
    modelled = {"a": 2.0, "b": 1.0, "c": 2.0, "d": 0.5}
    round_ = opened("a", "b", "c", "d", rules=Rules(lockstep=True, goal=3))
    for client in order:
        accept(round_, client, modelled[client])
    # d and b are fastest; a and c tie, and a comes first by name.
    assert sorted(round_.counted()) == ["a", "b", "d"]


def test_links_that_are_shared_decide_with_those_who_transfer_who_was_late() -> None:
    def sharing(alone: Mapping[str, WorkTime]) -> dict[str, WorkTime]:
        return {client: time.delayed(2.0 * (len(alone) - 1)) for client, time in alone.items()}

    rules = Rules(lockstep=True, goal=2, deadline_s=10, sharing=sharing)
    round_ = opened("a", "b", "c", "d", rules=rules)
    for client, modelled_s in {"a": 6.0, "b": 4.0, "c": 4.1}.items():
        assert accept(round_, client, modelled_s) is Outcome.ACCEPTED
    # Alone it would have been late already; it transfers, and makes the others wait, all the same.
    assert accept(round_, "d", modelled_s=10.5) is Outcome.LATE
    durations = {client: time.modelled_s for client, time in round_.times().items()}
    assert durations == {"a": 12.0, "b": 10.0, "c": 10.1, "d": 16.5}
    assert round_.overdue() == ["a", "c"]
    assert round_.counted() == ["b"]


def test_a_deadline_of_zero_is_a_deadline() -> None:
    rules = Rules(lockstep=True).within(0.0)
    round_ = opened("a", rules=rules)
    assert accept(round_, "a", modelled_s=0.5) is Outcome.LATE
    assert (rules.open_s(60.0), Rules(lockstep=False).open_s(60.0)) == (0.0, 60.0)


def test_the_same_body_again_gets_the_same_receipt_and_counts_once() -> None:
    round_ = opened("a", "b")
    key = Key("a", 3, 1)
    first = round_.receive(update(key))
    assert round_.receive(update(key)) == first
    decline(round_, "b")
    assert round_.counted() == ["a"]


def test_another_body_under_the_same_key_is_refused() -> None:
    round_ = opened("a", "b")
    key = Key("a", 3, 1)
    round_.receive(update(key, b"one"))
    receipt = round_.receive(update(key, b"two"))
    assert (receipt.outcome, receipt.reason) == (Outcome.REFUSED, Reason.OTHER_BODY)


def test_another_body_of_a_device_that_counts_is_refused_under_any_attempt() -> None:
    round_ = opened("a", "b")
    accept(round_, "a")
    round_.call("a")
    receipt = round_.receive(update(Key("a", 3, 2), b"other"))
    assert (receipt.outcome, receipt.reason) == (Outcome.REFUSED, Reason.OTHER_BODY)


@pytest.mark.parametrize(
    ("key", "outcome", "reason"),
    [
        (Key("a", 4, 1), Outcome.REFUSED, Reason.WRONG_ROUND),
        (Key("a", 2, 1), Outcome.LATE, Reason.ROUND_CLOSED),
        (Key("a", 3, 2), Outcome.REFUSED, Reason.NOT_CALLED),
        (Key("stranger", 3, 1), Outcome.REFUSED, Reason.NOT_CALLED),
    ],
)
def test_an_update_that_was_not_asked_for_is_not_taken(
    key: Key, outcome: Outcome, reason: Reason
) -> None:
    round_ = opened("a", "b")
    receipt = round_.receive(update(key))
    assert (receipt.outcome, receipt.reason) == (outcome, reason)
    assert round_.counted() == []


def test_damage_on_the_way_leaves_the_key_open_but_a_bad_update_is_the_last_word() -> None:
    round_ = opened("a", "b")
    damaged = update(Key("a", 3, 1), b"damaged")
    round_.refuse(damaged, Reason.CHECKSUM, "")
    assert round_.expects("a")
    assert accept(round_, "a") is Outcome.ACCEPTED
    round_.refuse(update(Key("b", 3, 1)), Reason.NOT_FINITE, "")
    assert phase_of(round_) is RoundPhase.FOLDING


def test_a_device_is_called_again_until_it_has_spoken() -> None:
    round_ = opened("a", "b")
    assert round_.expects("a")
    assert round_.call("a") == Key("a", 3, 2)
    accept(round_, "a", attempt=2)
    assert not round_.expects("a")
