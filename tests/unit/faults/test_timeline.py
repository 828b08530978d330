"""The timeline: targets from the seed, and times in rounds and seconds."""

import tracemalloc
from typing import Any

import numpy as np
import pytest

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.emulator.fleet.device_faults import window_of
from muster.emulator.fleet.fault_timeline import FaultTimeline, Occurrence
from muster.emulator.fleet.scenario_faults import ScenarioFaults
from muster.emulator.scenario.population import population
from muster.emulator.scenario.scenario import Scenario


def scenario(*faults: dict[str, Any], **more: Any) -> Scenario:
    values: dict[str, Any] = {
        "name": "t",
        "seed": 5,
        "task": {"name": "linear"},
        "server": {"rounds": 20, "deadline_s": 10.0},
        "groups": [{"name": "a", "count": 6}, {"name": "b", "count": 4}],
        "faults": list(faults),
    }
    return validate(Scenario, {**values, **more}, "t")


def resolved(*faults: dict[str, Any], **more: Any) -> ScenarioFaults:
    read = scenario(*faults, **more)
    return ScenarioFaults.of(read, population(read))


def occurrences(*faults: dict[str, Any], **more: Any) -> list[Occurrence]:
    (fault,) = resolved(*faults, **more).timeline.faults
    return fault.occurrences


OFFLINE = {"do": "offline", "when": {"round": 3}}
MODELLED: dict[str, Any] = {
    "clock": {"kind": "modelled", "round_s": 5.0},
    "groups": [{"name": "a", "count": 6, "device": {"examples_per_s": 10}}],
}
WALL = {"clock": {"kind": "wall", "round_s": 5.0}}


def test_a_fault_is_called_by_its_kind_and_a_number_unless_it_has_a_name() -> None:
    again = {**OFFLINE, "name": "offline"}
    read = scenario(OFFLINE, again, OFFLINE, {**OFFLINE, "do": "sign-flip"})
    names = ["offline-1", "offline", "offline-2", "sign-flip-1"]
    assert [fault.name for fault in read.faults] == names


def test_a_fault_cannot_have_the_name_of_one_that_has_none_of_its_own() -> None:
    with pytest.raises(ConfigError, match="two faults are called 'offline-1', because"):
        scenario(OFFLINE, {**OFFLINE, "name": "offline-1"})


def test_rounds_that_last_as_long_as_their_work_have_no_known_times() -> None:
    offline = {"do": "offline", "when": {"at_s": 12.0}, "for_s": 8.0}
    (only,) = occurrences(offline, **MODELLED)
    assert (only.begin_s, only.end_s, only.first_round) == (12.0, 20.0, None)
    (only,) = occurrences({**OFFLINE, "do": "sign-flip", "for_rounds": 2}, **MODELLED)
    assert (only.begin_s, only.first_round, only.end_round) == (None, 3, 5)
    with pytest.raises(ConfigError, match=r"with clock\.kind = 'modelled' the scenario time at"):
        scenario(OFFLINE, **MODELLED)


def test_targets_combine_and_are_drawn_from_the_seed_and_the_name() -> None:
    half = {**OFFLINE, "target": {"group": "a", "percent": 50}}
    (fault,) = resolved(half).timeline.faults
    assert len(fault.targets) == 3
    assert set(fault.targets) < {f"a-000{k}" for k in range(6)}
    assert fault.targets == sorted(fault.targets)
    assert resolved(half).timeline == resolved(half).timeline
    drawn = {tuple(resolved(half, seed=s).timeline.faults[0].targets) for s in range(20)}
    assert len(drawn) > 5


def test_a_percentage_is_at_least_one_device() -> None:
    (fault,) = resolved({**OFFLINE, "target": {"group": "b", "percent": 1}}).timeline.faults
    assert len(fault.targets) == 1


def test_without_a_duration_a_fault_lasts_to_the_end() -> None:
    (found,) = occurrences(OFFLINE)
    assert (found.first_round, found.end_round, found.begin_s) == (3, None, 120.0)


def test_in_lockstep_a_fault_acts_in_the_rounds_that_begin_while_it_lasts() -> None:
    # Rounds begin at 0, 60, 120 …: those at 120 and 180 begin in [100, 220).
    (found,) = occurrences({"do": "offline", "when": {"at_s": 100.0}, "for_s": 120.0})
    assert (found.first_round, found.end_round) == (3, 5)
    assert (found.begin_s, found.end_s) == (120.0, 240.0)


def test_seconds_from_a_round_become_rounds() -> None:
    # From the opening of round 3 at 120 s to 210 s: the rounds at 120 and 180.
    (found,) = occurrences({**OFFLINE, "for_s": 90.0})
    assert (found.first_round, found.end_round) == (3, 5)


def test_a_fault_between_two_rounds_is_refused() -> None:
    with pytest.raises(ConfigError, match="no round begins between 70 s and 90 s"):
        resolved({"do": "offline", "when": {"at_s": 70.0}, "for_s": 20.0})


def test_a_periodic_fault_comes_again_until_the_last_round() -> None:
    when = {"round": 2, "every_rounds": 8}
    found = occurrences({"do": "offline", "when": when, "for_rounds": 3})
    assert [(o.number, o.first_round, o.end_round) for o in found] == [
        (1, 2, 5), (2, 10, 13), (3, 18, 21)
    ]  # fmt: skip
    every = {"do": "offline", "when": {"at_s": 60.0, "every_s": 480.0}, "for_s": 180.0}
    assert [(o.first_round, o.end_round) for o in occurrences(every)] == [
        (2, 5),
        (10, 13),
        (18, 21),
    ]


def test_random_times_have_the_stated_means_and_are_each_targets_own() -> None:
    when = {"mean_up_s": 300.0, "mean_down_s": 100.0}
    long = {"server": {"rounds": 100_000}, "clock": {"round_s": 1.0}}
    found = occurrences({"do": "offline", "when": when, "target": {"group": "b"}}, **long)
    assert all(len(each.targets) == 1 for each in found)
    down = sum((each.end_s or 0) - (each.begin_s or 0) for each in found)
    # 4 devices, each for 100,000 s: a quarter of it down. 1,000 spells each, so 3 % is 2 sigma.
    assert down / 400_000 == pytest.approx(0.25, rel=0.05)
    assert len(found) / 1000 == pytest.approx(1.0, rel=0.1)
    first = {t: [o.begin_s for o in found if o.targets == [t]][:3] for t in ("b-0000", "b-0001")}
    assert first["b-0000"] != first["b-0001"]


def test_random_times_of_all_together_are_the_same_for_all() -> None:
    when = {"mean_up_s": 300.0, "mean_down_s": 100.0, "together": True}
    found = occurrences({"do": "offline", "when": when, "target": {"group": "b"}})
    assert all(len(each.targets) == 4 for each in found)
    begins = [each.begin_s for each in found]
    assert begins == sorted(begins, key=lambda s: s or 0)


def test_a_targets_times_do_not_depend_on_the_other_targets() -> None:
    when = {"mean_up_s": 300.0, "mean_down_s": 100.0}
    fault = {"do": "offline", "name": "f", "when": when}
    one = occurrences({**fault, "target": {"names": ["b-0002"]}})
    all_ = occurrences(fault)
    mine = [(o.begin_s, o.end_s) for o in all_ if o.targets == ["b-0002"]]
    assert mine == [(o.begin_s, o.end_s) for o in one]


def test_a_mean_time_without_end_loses_devices_for_good_one_by_one() -> None:
    when = {"mean_up_s": 300.0, "mean_down_s": 1e9}
    found = occurrences({"do": "offline", "when": when}, server={"rounds": 40, "deadline_s": 10.0})
    lost = [target for each in found for target in each.targets]
    assert len(lost) == len(set(lost)) > 5
    assert [each.first_round for each in found] == sorted(each.first_round or 0 for each in found)
    assert all(each.end_round is not None and each.end_round > 40 for each in found)


def test_on_the_wall_clock_times_stay_as_they_are() -> None:
    (found,) = occurrences({"do": "offline", "when": {"at_s": 12.0}, "for_s": 20.0}, **WALL)
    assert (found.first_round, found.begin_s, found.end_s) == (None, 12.0, 32.0)
    time = resolved(**WALL).time
    # Steps begin at 0, 5, 10, 15 …: those at 15 to 30 begin in [12, 32).
    assert [step for step in range(10) if window_of(found, time).has(0, step)] == [3, 4, 5, 6]


def test_rounds_on_the_wall_clock_stay_rounds() -> None:
    (found,) = occurrences({"do": "nan", "when": {"round": 4}, "for_rounds": 2}, **WALL)
    window = window_of(found, resolved(**WALL).time)
    assert [r for r in range(1, 10) if window.has(r, 99)] == [4, 5]


def test_a_timeline_reads_back_from_its_file() -> None:
    timeline = resolved(OFFLINE, {"do": "scaled", "factor": -3.0, "when": {"at_s": 60.0}}).timeline
    assert FaultTimeline.from_json(timeline.to_json()) == timeline


def test_the_same_timeline_follows_whatever_else_the_scenario_has() -> None:
    alone = resolved({**OFFLINE, "target": {"count": 3}}).timeline.faults[0]
    other = {"do": "nan", "target": {"count": 2}, "when": {"round": 1}}
    beside = resolved(other, {**OFFLINE, "target": {"count": 3}}).timeline.faults[1]
    assert alone == beside


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"do": "explode"}, "there is no fault called 'explode'"),
        ({"when": {}}, "expected one of round, at_s, mean_up_s and event, found none"),
        ({"when": {"round": 1, "at_s": 2.0}}, "found round and at_s"),
        ({"when": {"mean_up_s": 2.0}}, "belong together"),
        ({"when": {"at_s": 2.0, "every_rounds": 2}}, "every_rounds needs round"),
        ({"when": {"round": 2, "every_rounds": 3}}, "needs for_rounds or for_s"),
        ({"when": {"round": 2, "every_rounds": 3}, "for_rounds": 3}, "would never end"),
        ({"when": {"round": 21}}, "the run has only 20 rounds, found 21"),
        ({"when": {"event": "evaluated"}}, "devices, which do not see the journal"),
        ({"when": {"event": "nothing_such"}}, "there is no event 'nothing_such'"),
        ({"for_rounds": 2, "for_s": 10.0}, "both say how long"),
        ({"target": {"group": "c"}}, "there is no group 'c'; there are: a, b"),
        ({"target": {"names": ["a-0009"]}}, "there is no device 'a-0009'"),
        ({"target": {"names": ["a"]}}, "for the group, give target.group = 'a'"),
        ({"target": {"group": "b", "names": ["a-0001"]}}, "'a-0001' is not in group 'b'"),
        ({"target": {"group": "b", "count": 5}}, "5 devices, but the target has only 4"),
        ({"target": {"count": 2, "percent": 10}}, "both say how many"),
        ({"target": {"role": "server"}}, "offline strikes a device, found 'server'"),
        ({"do": "slow"}, "has no device.examples_per_s"),
        ({"do": "battery-drain"}, "needs a battery"),
        ({"do": "label-flip"}, "the task predicts numbers"),
        ({"do": "label-flip", "source": 1}, "source and into belong together"),
        ({"do": "scaled", "power": 2}, "power: unknown key"),
        ({"do": "crash"}, "crash needs for_s, in seconds of wall time"),
        ({"do": "pause", "for_rounds": 2}, "no round passes while pause lasts"),
        ({"do": "pause", "for_s": 120.0}, "fails after server.stall_s = 120 s"),
        ({"do": "disk-full", "for_s": 1.0}, "disk-full strikes a server, found 'device'"),
        ({"do": "memory-limit", "for_s": 1.0}, "mib: "),
        ({"do": "memory-limit", "mib": 64}, "memory-limit needs for_s"),
        ({"do": "cpu-limit", "share": 1.5, "for_s": 1.0}, "share: "),
        ({"do": "restart", "for_s": 1.0}, "restart happens at one moment"),
        ({"do": "restart", "target": {"role": "gateway"}}, "no such group has a gateway"),
        (
            {"do": "crash", "when": {"mean_up_s": 60.0, "mean_down_s": 30.0}},
            "when.mean_down_s: 30 s, but a run in lockstep fails after",
        ),
        ({"do": "partition", "for_s": 1.0}, "group 'a' has none; give it a link"),
    ],
    ids=str,
)
def test_an_impossible_fault_is_refused_with_a_sentence(
    fault: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        resolved({**OFFLINE, **fault})


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (OFFLINE, "give when.at_s"),
        ({"do": "nan", "when": {"round": 2}, "for_s": 3.0}, "rounds have no known scenario time"),
        ({"do": "nan", "when": {"at_s": 2.0}, "for_rounds": 3}, "rounds have no known scenario"),
    ],
)
def test_a_clock_that_runs_knows_no_scenario_time_of_a_round(
    fault: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        resolved(fault, **WALL)


@pytest.mark.parametrize("kind", ["scaled", "false-examples"])
def test_a_factor_that_changes_nothing_is_refused(kind: str) -> None:
    with pytest.raises(ConfigError, match="1 changes nothing; expected another factor"):
        scenario({"do": kind, "factor": 1.0, "when": {"round": 3}})


def test_one_table_in_place_of_a_list_of_tables_gets_a_hint() -> None:
    expected = "faults: expected a list of tables, found one table; write [[faults]] above it"
    with pytest.raises(ConfigError) as refusal:
        scenario(faults=OFFLINE)
    assert expected in str(refusal.value)


def test_two_faults_cannot_have_the_same_name() -> None:
    with pytest.raises(ConfigError, match="two faults are called 'x'"):
        scenario({**OFFLINE, "name": "x"}, {**OFFLINE, "name": "x"})


def test_shares_of_participation_are_refused_beside_faults_of_life() -> None:
    rule = {"kind": "importance", "shares": "exact"}
    server = {"rounds": 20, "aggregator": rule}
    with pytest.raises(ConfigError, match="computed without faults"):
        resolved(OFFLINE, server=server)


def test_draws_spread_over_all_devices() -> None:
    counts = np.zeros(10)
    names = [f"a-000{k}" for k in range(6)] + [f"b-000{k}" for k in range(4)]
    for seed in range(300):
        (fault,) = resolved({**OFFLINE, "target": {"count": 3}}, seed=seed).timeline.faults
        counts[[names.index(t) for t in fault.targets]] += 1
    # 300 · 3 / 10 = 90 each, with a standard deviation of about 8.
    assert counts.min() > 90 - 4 * 8
    assert counts.max() < 90 + 4 * 8


def test_a_fault_acts_where_one_of_its_windows_is_whatever_it_shares() -> None:
    every = {"round": 2, "every_rounds": 3}
    (fault,) = resolved({"do": "nan", "when": every, "for_rounds": 2}).inside
    assert len(fault.windows) == 1  # ten devices share it
    acts = {r for r in range(1, 30) if fault.acts("a-0003", round=r, step=r - 1)}
    assert acts == {2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18, 20, 21}
    assert not any(fault.acts("c-0001", r, r - 1) for r in range(1, 30))
    when = {"mean_up_s": 300.0, "mean_down_s": 100.0}
    found = resolved({"do": "nan", "when": when})
    (own,), (planned,) = found.inside, found.timeline.faults
    for client in ("a-0001", "b-0002"):
        mine = [o for o in planned.occurrences if client in o.targets]
        for step in range(20):
            within = any(o.first_round - 1 <= step < o.end_round - 1 for o in mine)  # type: ignore[operator]
            assert own.acts(client, step + 1, step) == within
    part = own.of(["b-0002", "nobody"])
    assert part is not None
    assert (set(part.devices), len(part.windows)) == ({"b-0002"}, 1)
    assert [part.acts("b-0002", s + 1, s) for s in range(20)] == [
        own.acts("b-0002", s + 1, s) for s in range(20)
    ]


@pytest.mark.parametrize(
    "when",
    [
        {"at_s": 0.0, "every_s": 1.0},
        {"round": 1, "every_rounds": 2},
        {"mean_up_s": 1.0, "mean_down_s": 1.0},
        {"mean_up_s": 1.0, "mean_down_s": 1.0, "together": True},
    ],
    ids=str,
)
def test_too_many_occurrences_and_targets_are_refused_before_they_are_made(
    when: dict[str, Any],
) -> None:
    lasts = {} if "mean_up_s" in when else {"for_s": 0.5} if "at_s" in when else {"for_rounds": 1}
    groups = {"groups": [{"name": "a", "count": 1_000}]}
    long = {"server": {"rounds": 1_000_000, "deadline_s": 1.0}, "clock": {"kind": "wall"}}
    fault = {"do": "nan", "when": when, **lasts}
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError, match="choose longer times between them, or fewer targets"):
            resolved(fault, **groups, **long)
        assert tracemalloc.get_traced_memory()[1] < 32 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_a_thousand_devices_share_the_windows_of_a_thousand_occurrences() -> None:
    when = {"round": 1, "every_rounds": 2}
    fault = {"do": "offline", "when": when, "for_rounds": 1}
    many = {"groups": [{"name": "a", "count": 1_000}], "server": {"rounds": 2_000}}
    tracemalloc.start()
    try:
        found = resolved(fault, **many)
        # It was 609 MiB with a window of its own for each of a million pairs.
        assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    finally:
        tracemalloc.stop()
    assert sum(map(len, found.inside[0].windows)) == 1_000
    with pytest.raises(ConfigError, match="1,000,000 of occurrences times targets"):
        resolved(fault, {**fault, "for_rounds": 1}, **many)


def test_in_the_buffered_mode_only_rounds_that_are_sure_to_come_have_faults() -> None:
    server = {"rounds": 20, "mode": {"kind": "buffered", "k": 2, "concurrency": 4}}
    nan = {"do": "nan", "for_rounds": 1}
    found = occurrences({**nan, "when": {"round": 5, "every_rounds": 6}}, server=server)
    assert [each.first_round for each in found] == [5, 11, 17]
    (last,) = occurrences({**nan, "when": {"round": 20}}, server=server)
    assert last.first_round == 20
    with pytest.raises(ConfigError, match="only 20 rounds that are sure to come, found 21"):
        resolved({**nan, "when": {"round": 21}}, server=server)
