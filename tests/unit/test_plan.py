"""What a plan says without running anything."""

import numpy as np
import pytest

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.common.exchange import Reason
from muster.emulator.planning import plan
from muster.emulator.planning.plan import instants
from muster.emulator.planning.result import Learning
from muster.emulator.report.plan_tables import describe
from muster.emulator.scenario.scenario import Scenario

LEARNING = Learning([10] * 40, parameters=100)


def scenario(*groups: dict[str, object], **sections: object) -> Scenario:
    values = {
        "name": "planned",
        "task": "linear",
        "server": {"rounds": 200},
        "groups": [{"count": 20, **group} for group in groups],
    }
    return validate(Scenario, {**values, **sections}, "test")


def test_a_plan_counts_calls_as_chance_has_it() -> None:
    found = plan(
        scenario(
            {"name": "coin", "availability": {"kind": "bernoulli", "probability": 0.3}},
            {"name": "there", "participation": {"drop_out": 0.25}},
        ),
        LEARNING,
    )
    coin, there = found.groups
    assert np.all(coin.called == 20)
    # 4,000 tosses: four standard deviations are 0.029.
    assert abs(coin.delivered.sum() / 4000 - 0.3) < 0.029
    assert coin.delivered.sum() + coin.reasons[Reason.OFFLINE].sum() == 4000
    np.testing.assert_allclose(coin.chance, 0.3)
    assert abs(there.delivered.sum() / 4000 - 0.75) < 0.028
    assert np.all(there.accepted == 20)
    assert not found.never(coin)


def test_a_plan_follows_the_selection_of_the_run() -> None:
    selection = {"kind": "uniform", "k": 5}
    found = plan(
        scenario({"name": "a"}, {"name": "b"}, server={"rounds": 50, "selection": selection}),
        LEARNING,
    )
    assert np.all(sum(group.called for group in found.groups) == 5)
    assert np.ptp(found.groups[0].called) > 0


def test_devices_that_can_never_take_part_are_named_with_their_reason() -> None:
    empty = {"initial": 0.1}
    never_charged = {"night_probability": 0.0, "top_ups_per_day": 0.0, "forced_probability": 0.0}
    found = plan(
        scenario(
            {"name": "flat", "device": {"battery": empty, "charging": never_charged}},
            {"name": "fine"},
            server={"rounds": 20},
        ),
        LEARNING,
    )
    flat, fine = found.groups
    assert len(found.never(flat)) == 20
    assert flat.usual_reason(set(found.never(flat))) is Reason.BATTERY
    assert fine.usual_reason(set(fine.clients)) is None
    told = describe(found)
    assert "warning: 20 of 20 enrolled flat (flat-0000, flat-0001, flat-0002 …)" in told
    assert "Their most frequent reason: battery" in told


def test_on_a_running_clock_rounds_are_taken_to_last_their_deadline() -> None:
    found = plan(
        scenario(
            {"name": "a"},
            clock={"kind": "scaled", "scale": 10, "round_s": 5},
            server={"rounds": 4, "deadline_s": 2.0},
        ),
        LEARNING,
    )
    assert not found.exact
    assert list(found.times_s) == [0.0, 20.0, 40.0, 60.0]


def test_work_that_outlasts_the_deadline_is_late() -> None:
    slow: dict[str, object] = {"name": "slow", "device": {"examples_per_s": 0.1}}
    found = plan(
        scenario(slow, {"name": "quick"}, server={"rounds": 3, "deadline_s": 50.0}), LEARNING
    )
    assert [list(group.late) for group in found.groups] == [[20.0] * 3, [0.0] * 3]
    lines = describe(found).splitlines()
    assert "warning: 60 updates would come after the deadline" in lines


def test_only_updates_that_meet_the_deadline_are_shown_as_delivered() -> None:
    slow: dict[str, object] = {"name": "slow", "device": {"examples_per_s": 0.1}}
    found = plan(scenario(slow, server={"rounds": 3, "deadline_s": 50.0, "minimum": 1}), LEARNING)
    (group,) = found.groups
    assert (group.delivered.sum(), group.in_time.sum()) == (60, 0)
    lines = [line.split() for line in describe(found).splitlines()]
    head, row = (next(line for line in lines if line[:1] == [name]) for name in ("group", "slow"))
    assert head[6:] == ["deliver", "cohort", "least", "most"]
    # Each share takes two words: a number and its unit.
    assert row[7:] == ["100.0", "%", "0.0", "%", "0.0", "0", "0"]
    assert ["slow", "late", "100.0", "%"] in lines
    assert "warning: 3 of 3 rounds have fewer than 1 updates" in describe(found)


def test_a_battery_pays_for_transfers_also_where_no_speed_is_modelled() -> None:
    found = Learning.of(scenario({"name": "a", "device": {"battery": {}}}))
    assert found.parameters > 0, "the radio drains by the size of the model"
    assert Learning.of(scenario({"name": "a"})).parameters == 0


def test_a_plan_of_too_many_steps_is_refused() -> None:
    clock = {"kind": "scaled", "scale": 100.0, "round_s": 10.0}
    server = {"rounds": 2001, "deadline_s": 1000.0}
    with pytest.raises(ConfigError, match=r"server.deadline_s: .* 20,000,001 steps .* 10,000,000"):
        plan(scenario({"name": "a"}, clock=clock, server=server), LEARNING)


def test_a_day_of_long_steps_counts_by_its_ticks() -> None:
    lockstep = scenario({"name": "a"}, clock={"round_s": 3600.0}, server={"rounds": 24})
    assert instants(lockstep) == 24 * 12
    wall = scenario(
        {"name": "a"}, clock={"kind": "wall"}, server={"rounds": 11, "deadline_s": 600.0}
    )
    assert instants(wall) == 10 * 10 + 1


def test_a_plan_can_be_ended_long_before_it_is_done() -> None:
    class Enough(Exception):
        pass

    def progress(done: int, of: int) -> None:
        if done:
            raise Enough(done / of)

    with pytest.raises(Enough) as ended:
        plan(scenario({"name": "a"}), LEARNING, progress)
    assert ended.value.args[0] < 0.5


def test_a_plan_sends_the_largest_mask_of_the_group() -> None:
    """Of a perceptron with 10 inputs, 8 hidden units and one output, a quarter of the 97
    parameters holds the bias of the output and one unit (12 parameters); a second one does not
    fit."""
    part = {"mask": "blocks", "device": {"capacity": 0.25}, "link": {"up": "1 kbit/s"}}
    read = scenario(
        {"name": "part", **part},
        {"name": "whole", "link": {"up": "1 kbit/s"}},
        task={"name": "linear", "dimension": 10, "model": "mlp", "hidden": [8]},
        server={"rounds": 2, "aggregator": "fedplt", "deadline_s": 1.0},
    )
    learning = Learning.of(read)
    assert learning.parameters == 97
    assert {name: masks.largest for name, masks in learning.masks.items()} == {"part": 13}
    late = [group.late.tolist() for group in plan(read, learning).groups]
    assert late == [[0, 0], [20, 20]]  # 0.4 s and 3.1 s
