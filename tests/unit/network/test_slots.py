"""Who may transfer in a round where there are few slots."""

import pytest

from muster.common.shared_lines import Overflow, SharedLine, granted, turns
from muster.emulator.gateway.slots import SlotAllocator


def slots(number: int | None, overflow: Overflow = "queue") -> SlotAllocator:
    return SlotAllocator(SharedLine(slots=number, overflow=overflow), 7, "phones")


def test_nothing_is_decided_before_all_have_spoken() -> None:
    few = slots(1, "collide")
    assert few.contend(1, "a", True, 3) == {}
    assert few.contend(1, "b", False, 3) == {(1, "b"): False}
    assert few.contend(1, "c", False, 3) == {(1, "a"): True, (1, "c"): False}


def test_who_collides_gets_nothing() -> None:
    few = slots(1, "collide")
    few.contend(1, "a", True, 2)
    assert few.contend(1, "b", True, 2) == {(1, "a"): False, (1, "b"): False}


def test_a_subset_is_the_one_that_lines_draws() -> None:
    few = slots(2, "subset")
    for client in "abcd":
        decided = few.contend(3, client, True, 4)
    drawn = granted(SharedLine(slots=2, overflow="subset"), 7, "phones", 3, "abcd")
    assert {client for (_, client), got in decided.items() if got} == drawn
    assert len(drawn) == 2


@pytest.mark.parametrize("active", [True, False])
@pytest.mark.parametrize("of", [1, 2, 9])
def test_who_comes_again_gets_the_same_answer(active: bool, of: int) -> None:
    few = slots(1, "subset")
    few.contend(3, "a", True, 2)
    decided = few.contend(3, "b", True, 2)
    for client in "ab":
        assert few.contend(3, client, active, of) == {(3, client): decided[3, client]}


def test_who_was_not_among_those_that_decided_may_not() -> None:
    few = slots(5, "subset")
    few.contend(3, "a", True, 1)
    assert few.contend(3, "late", True, 1) == {(3, "late"): False}


@pytest.mark.parametrize("overflow", ["collide", "subset"])
def test_a_device_that_says_another_number_decides_for_itself_only(overflow: Overflow) -> None:
    honest, few = slots(2, overflow), slots(2, overflow)
    for client in "abc":
        expected = honest.contend(3, client, True, 3)
    few.contend(3, "a", True, 3)
    assert few.contend(3, "b", True, 1) == {(3, "b"): True}
    decided = few.contend(3, "c", True, 3)
    assert decided == {each: got for each, got in expected.items() if each[1] != "b"}


def test_a_device_that_says_other_rounds_ends_none_of_the_others() -> None:
    few = slots(2, "subset")
    few.contend(3, "a", True, 2)
    for round in range(1000, 5000):
        few.contend(round, "x", True, 9)
    assert few.contend(3, "b", True, 2) == {(3, "a"): True, (3, "b"): True}
    assert few.contend(4997, "x", True, 1) == {(4997, "x"): False}, "two rounds are remembered"


def test_a_device_has_one_slot_and_waits_for_one() -> None:
    few = slots(2)
    for round in range(5):
        few.take(round, "a", float(round))
    assert few.take(1, "b", 9.0) == [(1, "b")]
    for round in range(5):
        assert few.take(round, "c", 10.0) == []
    assert few.take(1, "d", 11.0) == []
    assert few.give(4, "a") == [(4, "c")]
    assert few.give(1, "b") == [(1, "d")]


def test_a_slot_that_is_given_back_by_taking_another_goes_to_the_next() -> None:
    few = slots(1)
    few.take(1, "a", 0.0)
    assert few.take(1, "b", 1.0) == []
    assert few.take(2, "a", 2.0) == [(1, "b")]


def test_two_rounds_are_remembered() -> None:
    few = slots(5, "subset")
    for round in (1, 2):
        few.contend(round, "a", True, 1)
    assert few.contend(1, "a", True, 9) == {(1, "a"): True}
    few.contend(3, "a", True, 1)
    assert few.contend(2, "a", True, 9) == {(2, "a"): True}
    assert few.contend(1, "a", True, 9) == {(1, "a"): False}


def test_nobody_waits_in_a_round_that_is_forgotten() -> None:
    few = slots(5, "subset")
    few.contend(1, "a", True, 2)
    few.contend(2, "a", True, 1)
    assert few.contend(3, "a", True, 1) == {(1, "a"): False, (3, "a"): True}


@pytest.mark.parametrize("number", [1, None])
def test_who_queues_is_answered_at_once(number: int | None) -> None:
    few = slots(number)
    assert few.contend(1, "a", True, 3) == {(1, "a"): True}
    assert few.contend(1, "b", False, 3) == {(1, "b"): False}


def test_slots_are_taken_in_the_order_of_asking() -> None:
    few = slots(2)
    assert few.take(1, "d", 0.0) == [(1, "d")]
    assert few.take(1, "c", 1.0) == [(1, "c")]
    assert few.take(1, "b", 2.0) == []
    assert few.take(1, "a", 3.0) == []
    assert few.give(1, "c") == [(1, "b")]
    assert few.give(1, "d") == [(1, "a")]


def test_who_asks_at_the_same_instant_comes_by_the_drawn_turns() -> None:
    few = slots(1)
    clients = "abcdef"
    for client in clients:
        few.contend(1, client, True, 6)
    few.take(1, "a", 0.0)
    for client in clients[1:]:
        few.take(1, client, 5.0)
    order, holder = [], "a"
    while holders := few.give(1, holder):
        holder = holders[0][1]
        order.append(holder)
    assert order == [client for client in turns(7, "phones", 1, clients) if client != "a"]


def test_a_holder_that_asks_again_is_answered_at_once() -> None:
    few = slots(1)
    few.take(1, "a", 0.0)
    few.take(1, "b", 0.0)
    assert few.take(1, "a", 1.0) == [(1, "a")]


def test_who_waits_twice_waits_once() -> None:
    few = slots(1)
    few.take(1, "a", 0.0)
    few.take(1, "b", 0.0)
    few.take(1, "b", 1.0)
    assert few.give(1, "a") == [(1, "b")]
    assert few.give(1, "b") == []


def test_who_gives_up_waiting_gets_nothing() -> None:
    few = slots(1)
    few.take(1, "a", 0.0)
    few.take(1, "b", 0.0)
    few.give(1, "b")
    assert few.give(1, "a") == []


@pytest.mark.parametrize("overflow", ["collide", "subset"])
def test_without_a_queue_a_slot_is_there_at_once(overflow: Overflow) -> None:
    few = slots(1, overflow)
    assert few.take(1, "a", 0.0) == [(1, "a")]
    assert few.take(1, "b", 0.0) == [(1, "b")]
