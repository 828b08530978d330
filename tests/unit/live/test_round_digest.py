"""Rounds added up by group."""

from muster.emulator.live.round_digest import (
    DeviceAnswer,
    DeviceUpdate,
    GroupDigest,
    RoundDigest,
    SlowestDevice,
    digest_of,
    hold_ups,
    sum_of,
)


def round_of(number: int, **after_s: float) -> RoundDigest:
    groups = {
        name: GroupDigest(folded=1, slowest=SlowestDevice(name, seconds, 0.0, 0.0, 0.0))
        for name, seconds in after_s.items()
    }
    return RoundDigest(number, groups)


def test_a_group_holds_rounds_up_by_the_time_for_which_others_waited() -> None:
    rounds = [round_of(1, a=1, b=3), round_of(2, a=2, b=7), round_of(3, a=4, b=3)]
    first, second = hold_ups(rounds)
    assert (first.group, first.last, first.of, first.lead_s) == ("b", 2, 3, 3.5)  # of 2 and 5
    assert (second.group, second.last, second.lead_s) == ("a", 1, 1.0)


def test_rounds_without_an_update_hold_nobody_up() -> None:
    assert hold_ups([RoundDigest(1, {"a": GroupDigest(called=3)})]) == []


def test_a_digest_counts_calls_reasons_and_weights() -> None:
    answers = [
        DeviceAnswer(1, "a-0000", "accept", None, None, 2.0),
        DeviceAnswer(1, "a-0001", "decline", "battery", None, None),
        DeviceAnswer(1, "a-0002", "abort", "drop-out", None, 5.0),
        DeviceAnswer(1, "b-0000", "accept", None, None, 1.0),
        DeviceAnswer(1, "b-0001", "absent", None, None, None),
    ]
    updates = [
        DeviceUpdate(1, "a-0000", 0, 3.0, "folded", None, None),
        DeviceUpdate(1, "a-0002", 0, None, "dropped", None, None, "drop-out"),
        DeviceUpdate(1, "b-0000", 4, 1.0, "folded", None, None),
    ]
    group_of = {client: client[0] for client in ("a-0000", "a-0001", "a-0002", "b-0000", "b-0001")}
    found = digest_of(1, 0.0, answers, updates, {}, {}, group_of, lockstep=True).groups
    a, b = found["a"], found["b"]
    assert (a.called, a.accepted, a.folded) == (3, 2, 1)
    assert (a.reasons, a.uncounted) == ({"battery": 1}, {"drop-out": 1})
    assert (b.called, b.reasons, b.staleness) == (1, {"absent": 1}, {4: 1})
    assert (a.weight_share, b.weight_share) == (0.75, 0.25)
    assert (a.slowest, b.slowest) == (SlowestDevice("a-0002", 5.0), SlowestDevice("b-0000", 1.0))


def test_shares_of_the_weight_are_means_over_rounds_that_counted_updates() -> None:
    rounds = [
        RoundDigest(1, {"a": GroupDigest(folded=1, weight_share=1.0)}),
        RoundDigest(2, {"a": GroupDigest(folded=1, weight_share=0.5)}),
        RoundDigest(3, {"a": GroupDigest(called=1)}),
    ]
    assert sum_of(rounds)["a"].weight_share == 0.75
