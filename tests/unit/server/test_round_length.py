"""How long a round lasts on the clock `modelled`, against arithmetic by hand."""

from collections.abc import Mapping

import pytest

from muster.common.exchange import Answer, Decision, Key, Reason, Update
from muster.server.rounds.cohort import WorkTime
from muster.server.rounds.modes import MODES, Mode
from muster.server.rounds.modes.contract import RoundEnd
from muster.server.rounds.round import Round
from muster.server.rounds.rules import Rules

IDLE_S = 60.0
OPENED_S = 100.0


def rules(goal: int | None = None, deadline_s: float | None = None, kind: str = "synchronous",
          **more: object) -> Rules:  # fmt: skip
    mode = MODES.parse({"kind": kind, **more})
    assert isinstance(mode, Mode)
    return Rules.of(mode, goal, deadline_s, lockstep=True, idle_s=IDLE_S)


def played(
    rules: Rules,
    updates: Mapping[str, float],
    lost: Mapping[str, tuple[float, Reason]] | None = None,
    declined: tuple[str, ...] = (),
    number: int = 3,
) -> Round:
    """A round of devices that send updates after some modelled seconds, that lose their work after
    some, for a reason, and that decline."""
    round_ = Round(number, number, rules, scenario_s=OPENED_S)
    round_.select([*updates, *(lost or {}), *declined])
    for client in round_.uncalled():
        key = round_.call(client)
        if client in updates:
            seconds = updates[client]
            round_.answer(Answer(key, Decision.ACCEPT, seconds))
            round_.receive(Update(key, 1, b"", 0, 0.0, 0.0, 0.0, seconds))
        elif client in declined:
            round_.answer(Answer(key, Decision.DECLINE, reason=Reason.OFFLINE))
        else:
            seconds, reason = (lost or {})[client]
            round_.answer(Answer(key, Decision.ABORT, seconds, reason))
    return round_


def lasts_s(round_: Round, kind: str = "synchronous") -> float:
    mode = MODES.parse({"kind": kind})
    assert isinstance(mode, Mode)
    return mode.next_s(round_.end(), 7.0) - OPENED_S


SPEEDS = {"a": 5.0, "b": 2.0, "c": 9.0, "d": 30.0}


@pytest.mark.parametrize("kind", ["synchronous", "opportunistic"])
def test_a_round_lasts_until_the_update_that_reaches_its_goal(kind: str) -> None:
    for goal, seconds in ((1, 2.0), (2, 5.0), (3, 9.0), (4, 30.0)):
        assert lasts_s(played(rules(goal, kind=kind), SPEEDS), kind) == seconds


@pytest.mark.parametrize("kind", ["synchronous", "opportunistic"])
def test_without_a_goal_it_lasts_until_the_last_update(kind: str) -> None:
    assert lasts_s(played(rules(kind=kind), SPEEDS), kind) == 30.0


@pytest.mark.parametrize("kind", ["synchronous", "opportunistic"])
def test_no_round_lasts_longer_than_its_deadline(kind: str) -> None:
    assert lasts_s(played(rules(None, 8.0, kind), SPEEDS), kind) == 8.0
    assert lasts_s(played(rules(3, 8.0, kind), SPEEDS), kind) == 8.0, "two are in time"
    assert lasts_s(played(rules(2, 8.0, kind), SPEEDS), kind) == 5.0, "the goal comes first"
    assert lasts_s(played(rules(None, 50.0, kind), SPEEDS), kind) == 30.0, "all are in time"


def test_devices_that_decline_are_not_waited_for() -> None:
    assert lasts_s(played(rules(None, 50.0), {"a": 5.0}, declined=("b", "c"))) == 5.0


def test_a_device_that_loses_its_work_says_nothing_so_the_round_waits_until_the_deadline() -> None:
    lost = {"x": (1.0, Reason.DROP_OUT)}
    assert lasts_s(played(rules(None, 50.0), {"a": 5.0}, lost)) == 50.0
    assert lasts_s(played(rules(1, 50.0), {"a": 5.0}, lost)) == 5.0, "its goal is reached"
    assert lasts_s(played(rules(2, 50.0), {"a": 5.0}, lost)) == 50.0
    assert lasts_s(played(rules(), {"a": 5.0}, lost)) == 5.0, "there is nothing to wait for"
    assert lasts_s(played(rules(), {"a": 5.0}, {"x": (6.0, Reason.POWERED_OFF)})) == 6.0


def test_a_device_that_says_that_it_was_interrupted_is_waited_for_until_then() -> None:
    lost = {"x": (7.0, Reason.INTERRUPTED)}
    assert lasts_s(played(rules(None, 50.0), {"a": 5.0}, lost)) == 7.0


def test_a_round_in_which_nobody_works_lasts_its_deadline_or_a_step() -> None:
    assert lasts_s(played(rules(None, 50.0), {}, declined=("a",))) == 50.0
    assert lasts_s(played(rules(2), {}, declined=("a",))) == IDLE_S
    assert lasts_s(Round(3, 3, rules(), scenario_s=OPENED_S)) == IDLE_S


def test_an_update_that_was_refused_took_its_time() -> None:
    round_ = Round(3, 3, rules(None, 50.0), scenario_s=OPENED_S)
    round_.select(["a", "bad"])
    for client, seconds in (("a", 5.0), ("bad", 8.0)):
        key = round_.call(client)
        round_.answer(Answer(key, Decision.ACCEPT, seconds))
        update = Update(key, 1, b"", 0, 0.0, 0.0, 0.0, seconds)
        if client == "bad":
            round_.refuse(update, Reason.NORM, "")
        else:
            round_.receive(update)
    assert lasts_s(round_) == 8.0


def test_shared_links_make_rounds_longer() -> None:
    def sharing(alone: Mapping[str, WorkTime]) -> dict[str, WorkTime]:
        return {client: time.delayed(4.0) for client, time in alone.items()}

    round_ = played(rules(2, 20.0), SPEEDS)
    round_.rules = Rules(lockstep=True, goal=2, deadline_s=20.0, sharing=sharing, idle_s=IDLE_S)
    assert lasts_s(round_) == 9.0


def test_an_opportunistic_round_waits_for_work_of_earlier_rounds() -> None:
    first = played(rules(1, kind="opportunistic"), {"a": 5.0, "b": 12.0}, number=1)
    assert lasts_s(first, "opportunistic") == 5.0
    next_, _ = first.successor(first.counted(), 2)
    next_.scenario_s = OPENED_S + 5.0
    next_.select(["c"])
    key = next_.call("c")
    next_.answer(Answer(key, Decision.ACCEPT, 30.0))
    next_.receive(Update(key, 1, b"", 0, 0.0, 0.0, 0.0, 30.0))
    assert lasts_s(next_, "opportunistic") == 12.0, "b finishes before c"


@pytest.mark.parametrize("kind", ["synchronous", "opportunistic"])
def test_on_the_clock_of_rounds_every_round_lasts_as_long(kind: str) -> None:
    mode = MODES.parse({"kind": kind})
    assert isinstance(mode, Mode)
    assert mode.next_s(RoundEnd(3, 14.0, [99.0], untried=False), 7.0) == 21.0


def test_a_key_of_another_round_does_not_lengthen_it() -> None:
    round_ = played(rules(), {"a": 5.0})
    round_.answer(Answer(Key("a", 2, 1), Decision.ACCEPT, 1e9))
    assert lasts_s(round_) == 5.0
