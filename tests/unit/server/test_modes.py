"""The modes without a server: who is called, what completes a round, what stale updates weigh."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from muster.common.clock import WallClock
from muster.common.exchange import Answer, Decision, Key, Outcome, Reason, Update
from muster.server.account.ledger import Ledger
from muster.server.account.ledger_reader import OpenAssignmentRow
from muster.server.coordination.preparation import restore_assignments
from muster.server.coordination.scenario_time import ScenarioTime
from muster.server.coordination.shared_flows import SharedFlows
from muster.server.fleet.devices import EnrolledDevice
from muster.server.fleet.fleet import Fleet
from muster.server.rounds.cohort import CohortMember
from muster.server.rounds.modes import MODES, Mode
from muster.server.rounds.modes.contract import ModeConditions, RoundEnd
from muster.server.rounds.phases import RoundPhase
from muster.server.rounds.round import Round
from muster.server.rounds.rules import Rules
from muster.server.rounds.selection import Candidate, SelectAll
from muster.server.rounds.staleness import STALENESS_WEIGHTS, StalenessWeight

ALL = SelectAll(kind="all")
CANDIDATES = [Candidate(f"c{n}", 10) for n in range(6)]


def mode(kind: str, **settings: Any) -> Mode:
    found = MODES.parse({"kind": kind, **settings})
    assert isinstance(found, Mode)
    return found


def refusals(found: Mode, selection: Any = ALL, devices: int = 100, **others: Any) -> str:
    return "; ".join(found.refusals(ModeConditions(selection, devices, lockstep=True, **others)))


def test_the_buffered_mode_calls_as_many_as_are_missing() -> None:
    buffered = mode("buffered", k=2, concurrency=4)

    def draws() -> np.random.Generator:
        return np.random.default_rng(1)

    chosen = buffered.wanted(CANDIDATES, 1, ALL, draws)
    assert len(chosen) == 3
    assert chosen == sorted(chosen), "in the order of the candidates"
    assert buffered.wanted(CANDIDATES, 1, ALL, draws) == chosen
    assert buffered.wanted(CANDIDATES, 4, ALL, draws) == []
    assert buffered.wanted(CANDIDATES[:1], 1, ALL, draws) == ["c0"]
    assert buffered.wanted([], 0, ALL, draws) == []


def test_the_next_round_of_the_buffered_mode_opens_when_its_last_update_finishes() -> None:
    buffered = mode("buffered")
    assert buffered.next_s(RoundEnd(3, 10.0, [12.5, 11.0], untried=True), 60.0) == 12.5
    # An update that had finished before the round opened does not turn time back.
    assert buffered.next_s(RoundEnd(3, 10.0, [8.0], untried=True), 60.0) == 10.0


def test_without_a_version_others_are_asked_at_once_or_at_the_next_step() -> None:
    buffered = mode("buffered")
    assert buffered.next_s(RoundEnd(3, 70.0, [], untried=True), 60.0) == 70.0
    assert buffered.next_s(RoundEnd(3, 70.0, [], untried=False), 60.0) == 120.0
    assert buffered.next_s(RoundEnd(3, 120.0, [], untried=False), 60.0) == 180.0


def test_with_calls_at_each_finish_the_next_round_opens_at_the_next_finish() -> None:
    mode_ = mode("buffered", k=2, concurrency=2, calls_at="finish")

    def next_s(finished: list[float], open: list[float], untried: bool = True) -> float:
        return mode_.next_s(RoundEnd(3, 70.0, finished, untried, open), 60.0)

    assert next_s([80.0, 75.0], [90.0]) == 80.0, "a version is made"
    assert next_s([], [90.0, 85.0, 70.0]) == 85.0, "one has finished before, and two work"
    assert next_s([], [90.0]) == 70.0, "one place is free, and others can be called"
    assert next_s([], [90.0], untried=False) == 90.0, "nobody else can be called"
    assert next_s([], [190.0], untried=False) == 120.0, "the next step of life comes first"
    assert next_s([], [60.0], untried=False) == 120.0, "nobody works"


@pytest.mark.parametrize("kind", ["synchronous", "opportunistic"])
def test_rounds_of_the_other_modes_open_at_fixed_times(kind: str) -> None:
    assert mode(kind).next_s(RoundEnd(3, 120.0, [500.0], untried=False), 60.0) == 180.0


def test_settings_that_contradict_each_other_are_refused() -> None:
    assert refusals(mode("buffered", k=2, concurrency=4)) == ""
    assert "at most 4 assignments" in refusals(mode("buffered", k=5, concurrency=4))
    assert "expected k of at most 1,000" in refusals(
        mode("buffered", k=2_000, concurrency=2_000, calls_at="finish"), devices=2_000
    )
    assert "only 3 devices" in refusals(mode("buffered", k=4, concurrency=4), devices=3)
    assert "expected a minimum of at most k" in refusals(mode("buffered", k=2), minimum=3)


def test_links_that_are_shared_need_rounds_that_end_before_the_next_one_opens() -> None:
    for kind in ("synchronous", "buffered"):
        assert refusals(mode(kind), shared=True) == ""
    opportunistic = mode("opportunistic")
    assert "at most clock.round_s = 60, found none" in refusals(opportunistic, shared=True)
    assert "found 70" in refusals(opportunistic, shared=True, deadline_s=70.0)
    assert refusals(opportunistic, shared=True, deadline_s=60.0) == ""
    assert refusals(opportunistic, deadline_s=70.0) == ""


@pytest.mark.parametrize(
    ("settings", "factors"),
    [
        ({"kind": "constant"}, [1.0, 1.0, 1.0]),
        ({"kind": "polynomial", "exponent": 0.5}, [1.0, 2**-0.5, 10**-0.5]),
        ({"kind": "threshold", "limit": 1, "slope": 0.5}, [1.0, 1.0, 1 / 5]),
    ],
)
def test_staleness_weights(settings: dict[str, Any], factors: Sequence[float]) -> None:
    weight = STALENESS_WEIGHTS.parse(settings)
    assert isinstance(weight, StalenessWeight)
    assert [weight.factor(s) for s in (0, 1, 9)] == pytest.approx(factors)


# --- rounds that take over open assignments ------------------------------------------------------


def update(client: str, round: int, modelled_s: float) -> Update:
    return Update(Key(client, round, 1), 10, bytes(16), 8, 0.1, 0.1, 1.0, modelled_s)


def collected(round: Round, durations: dict[str, float]) -> Round:
    """The round after each of these devices was called and sent its update."""
    round.select(list(durations))
    for client, seconds in durations.items():
        key = round.call(client)
        round.answer(Answer(key, Decision.ACCEPT, seconds))
    for client, seconds in durations.items():
        assert round.receive(update(client, round.number, seconds)).outcome is Outcome.ACCEPTED
    return round


def test_the_updates_that_finish_first_count_and_the_others_stay() -> None:
    rules = Rules(lockstep=True, goal=2, least=2, outlives_round=True)
    first = collected(Round(1, 0, rules, scenario_s=0.0), {"a": 5.0, "b": 1.0, "c": 3.0})
    assert first.phase is RoundPhase.FOLDING
    assert first.counted() == ["b", "c"]
    second = Round(2, 1, rules, scenario_s=3.0)
    second.take_over({"a": first.cohort["a"]})
    collected(second, {"b": 2.0, "d": 2.5})
    assert second.counted() == ["a", "b"], "both finish at 5, the ties by name"
    assert (second.staleness_of("a"), second.staleness_of("b")) == (1, 0)
    assert list(second.own()) == ["b", "d"]


def test_too_few_updates_wait_for_a_later_round() -> None:
    rules = Rules(lockstep=True, goal=3, least=3, outlives_round=True)
    assert collected(Round(1, 0, rules, scenario_s=0.0), {"a": 5.0, "b": 1.0}).counted() == []


def test_a_round_that_ends_at_each_finish_makes_a_version_when_enough_have_finished() -> None:
    rules = Rules(lockstep=True, goal=2, least=2, outlives_round=True, each=True)
    first = collected(Round(1, 0, rules, scenario_s=0.0), {"a": 5.0, "b": 1.0, "c": 3.0})
    assert first.counted() == [], "only b has finished at the next finish"
    assert sorted(first.end().open_s) == [1.0, 3.0, 5.0]
    second, _ = first.successor([], 0)
    second.scenario_s = 1.0
    collected(second, {"d": 1.5})
    assert second.counted() == ["b", "d"], "d finishes before c"
    assert second.end() == RoundEnd(2, 1.0, [1.0, 2.5], False, [5.0, 3.0])
    together = Round(3, 1, rules, scenario_s=2.5)
    together.take_over({client: second.cohort[client] for client in ("a", "c")})
    collected(together, {"e": 0.5, "f": 0.5})
    assert together.counted() == ["c", "e"], "three finish at 3, the ties by name"
    left = Round(4, 2, rules, scenario_s=3.0)
    left.take_over({client: together.cohort[client] for client in ("a", "f")})
    collected(left, {"g": 4.0})
    assert left.counted() == ["a", "f"], "f had finished before the round opened"


def test_on_the_wall_clock_such_a_round_closes_with_the_first_update_that_comes() -> None:
    rules = Rules(lockstep=False, goal=2, least=2, outlives_round=True, each=True)
    first = Round(1, 0, rules)
    first.select(["a", "b"])
    for client in ("a", "b"):
        first.call(client)
    assert first.receive(update("a", 1, 0.0)).outcome is Outcome.ACCEPTED
    assert first.phase is RoundPhase.FOLDING
    assert first.counted() == []
    second, _ = first.successor([], 0)
    assert second.has_work()
    second.select(["c"])
    assert second.phase is RoundPhase.COLLECTING, "an update that was there does not close it"
    second.call("c")
    assert second.receive(update("c", 2, 0.0)).outcome is Outcome.ACCEPTED
    assert second.counted() == ["a", "c"]


def test_a_round_has_work_if_a_device_is_expected_or_a_version_can_be_made() -> None:
    rules = Rules(lockstep=False, goal=2, least=2, outlives_round=True)
    first = Round(1, 0, rules)
    assert not first.has_work()
    first.select(["a", "b", "c"])
    for client in ("a", "b", "c"):
        first.call(client)
    for client in ("a", "b", "c"):
        first.receive(update(client, 1, 0.0))
    assert first.has_work()
    second, _ = first.successor(["a", "b"], 1)
    assert list(second.cohort) == ["c"]
    assert not second.has_work(), "the update of c waits for another one"


def test_an_update_counts_in_the_round_in_whose_window_it_finishes() -> None:
    rules = Rules(lockstep=True, window_s=4.0, outlives_round=True)
    first = collected(Round(1, 0, rules, scenario_s=0.0), {"a": 4.0, "b": 9.0})
    assert first.counted() == ["a"]
    second = Round(2, 1, rules, scenario_s=4.0)
    second.take_over({"b": first.cohort["b"]})
    second.select([])
    assert second.phase is RoundPhase.FOLDING, "nothing more is expected"
    assert second.counted() == []
    third = Round(3, 1, rules, scenario_s=8.0)
    third.take_over({"b": first.cohort["b"]})
    third.select([])
    assert third.counted() == ["b"]


def test_on_the_wall_clock_updates_are_taken_between_rounds_and_count_in_the_next() -> None:
    rules = Rules(lockstep=False, goal=1, outlives_round=True)
    first = Round(1, 0, rules)
    first.select(["a", "b"])
    for client in ("a", "b"):
        first.call(client)
    assert first.receive(update("a", 1, 0.0)).outcome is Outcome.ACCEPTED
    assert first.phase is RoundPhase.FOLDING
    assert first.receive(update("b", 1, 0.0)).outcome is Outcome.ACCEPTED
    assert first.counted() == ["a"]
    second = Round(2, 1, rules)
    second.take_over({"b": first.cohort["b"]})
    second.select(["a"])
    assert second.phase is RoundPhase.FOLDING, "the goal is reached at once"
    assert second.counted() == ["b"]


def test_an_assignment_that_was_taken_over_has_the_key_of_its_call() -> None:
    rules = Rules(lockstep=False, outlives_round=True)
    first = Round(1, 0, rules)
    first.select(["a", "b"])
    first.call("a")
    second = Round(2, 1, rules)
    second.take_over({"a": first.cohort["a"]})
    second.select(["c"])
    assert second.has_call(Key("a", 1, 1))
    assert second.call("a") == Key("a", 1, 2)
    assert second.receive(update("a", 1, 0.0)).outcome is Outcome.ACCEPTED
    foreign = second.receive(update("b", 1, 0.0))
    assert (foreign.outcome, foreign.reason) == (Outcome.LATE, Reason.ROUND_CLOSED)


def test_a_restarted_server_has_the_cohort_in_the_order_of_the_calls() -> None:
    # The fleet has "z" before "a", and rounds call in the order of the fleet.
    fleet = Fleet(EnrolledDevice(client, "g", place, 5) for place, client in enumerate("zab"))
    calls = [("a", 1), ("b", 2), ("z", 2)]
    rows = [OpenAssignmentRow(client, number, 0, 0.0, 0) for client, number in calls]
    ledger = cast("Ledger", SimpleNamespace(open_assignments=lambda: rows))
    round = Round(3, 2, Rules(lockstep=False, outlives_round=True))
    links = SharedFlows({}, fleet.devices, {})
    restore_assignments(
        round, ledger, ScenarioTime(False, 1.0, 1.0, WallClock()), fleet, links, lockstep=False
    )
    assert list(round.cohort) == ["a", "z", "b"]


def test_staleness_has_a_limit() -> None:
    rules = Rules(lockstep=True, outlives_round=True, max_staleness=2)
    member = collected(Round(1, 0, rules, scenario_s=0.0), {"a": 1.0}).cohort["a"]
    assert not Round(3, 2, rules).is_stale(member)
    assert Round(4, 3, rules).is_stale(member)


@pytest.mark.parametrize(("each", "rounds"), [(False, 30), (True, 60)])
def test_silent_devices_occupy_their_places_only_for_so_many_rounds(
    each: bool, rounds: int
) -> None:
    """Where all that may work are silent, no version is made that would end their assignments."""
    rules = Rules(lockstep=False, least=2, outlives_round=True, max_staleness=29, each=each)
    silent = CohortMember(1, 0, 0.0, 0)
    assert not Round(1 + rounds, 0, rules).is_stale(silent)
    assert Round(2 + rounds, 0, rules).is_stale(silent)
    assert Round(22, 0, replace(rules, max_staleness=0)).is_stale(silent)
    assert not Round(21, 0, replace(rules, max_staleness=0)).is_stale(silent)
    assert not Round(99, 0, replace(rules, lockstep=True)).is_stale(silent)
    came = collected(Round(1, 0, rules), {"a": 1.0}).cohort["a"]
    assert not Round(99, 0, rules).is_stale(came)  # its update waits for one that completes `k`
