"""What waits for an event, a round or a scenario time."""

from typing import Any

from muster.emulator.faults.catalogue.crash import Crash
from muster.emulator.fleet.fault_timeline import Occurrence
from muster.emulator.injection.waiting_injections import PlannedInjection, WaitingInjections


def waiting(*times: dict[str, Any]) -> WaitingInjections:
    return WaitingInjections(
        PlannedInjection("f", Crash(kind="crash"), Occurrence(number=number, targets=[], **each))
        for number, each in enumerate(times, 1)
    )


def numbers(found: list[PlannedInjection]) -> list[int]:
    return [each.occurrence.number for each in found]


def opened(round: int) -> dict[str, Any]:
    return {"event": "round_opened", "round": round}


def test_an_event_begins_those_of_any_round_and_of_its_own_once() -> None:
    queue = waiting(
        {"event": "evaluated"}, {"event": "evaluated", "first_round": 4}, {"event": "died"}
    )
    assert numbers(queue.take_at({"event": "evaluated", "round": 3})) == [1]
    assert numbers(queue.take_at({"event": "evaluated", "round": 4})) == [2]
    assert numbers(queue.take_at({"event": "evaluated", "round": 4})) == []
    assert numbers(queue.take_at({"event": "died", "who": "dev-0000"})) == [3]


def test_a_round_begins_its_own_when_it_opens_first() -> None:
    queue = waiting({"first_round": 2, "begin_s": 60.0}, {"first_round": 3}, {"first_round": 2})
    assert numbers(queue.take_at({"event": "round_committed", "round": 2})) == []
    assert numbers(queue.take_at(opened(2))) == [1, 3]
    assert numbers(queue.take_at(opened(2))) == []
    assert numbers(queue.take_at(opened(3))) == [2]


def test_rounds_that_passed_while_nobody_read_the_journal_begin_what_has_not_ended() -> None:
    queue = waiting(
        {"first_round": 5},
        {"first_round": 3},
        {"first_round": 4, "end_round": 7},
        {"first_round": 8},
    )
    assert numbers(queue.take_at(opened(7))) == [2, 1]
    assert numbers(queue.take_at(opened(8))) == [4]


def test_scenario_time_begins_in_its_order() -> None:
    queue = waiting({"begin_s": 20.0}, {"begin_s": 10.0}, {"begin_s": 30.0})
    assert queue.next_s == 10.0
    assert numbers(queue.take_until(20.0)) == [2, 1]
    assert queue.next_s == 30.0
    assert numbers(queue.take_until(29.9)) == []
    assert numbers(queue.take_until(30.0)) == [3]
    assert queue.next_s is None
