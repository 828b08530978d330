"""Hours of the day on the axes of figures, in a plan and in the report of its run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from matplotlib.patches import StepPatch
from tests.unit.emulator.charts import charts_of

from muster.emulator.planning.plan import plan
from muster.emulator.planning.result import Learning
from muster.emulator.report.hours import Hours
from muster.emulator.report.plan_figure import draw
from muster.emulator.scenario.scenario import Scenario

if TYPE_CHECKING:
    from tests.unit.emulator.conftest import RunFolder

LEARNING = Learning(parameters=10, examples=[10] * 40)


def ticks(hours: Hours, end_h: float, most: int = 11) -> dict[str, float]:
    moments, labels = hours.ticks(0.0, 60 * end_h, most)
    return dict(zip(labels, moments / 60, strict=True))


def test_ticks_are_hours_of_the_day() -> None:
    assert ticks(Hours.of(22.0, [0.0, 0.0]), 4) == {
        "22:00": 0.0, "22:30": 0.5, "23:00": 1.0, "23:30": 1.5, "00:00": 2.0, "00:30": 2.5,
        "01:00": 3.0, "01:30": 3.5, "02:00": 4.0,
    }  # fmt: skip


def test_days_are_counted_if_there_is_more_than_one() -> None:
    found = ticks(Hours.of(12.0, []), 48)
    assert found["12:00\nday 1"] == 0.0
    assert found["00:00\nday 2"] == 12.0
    assert found["00:00\nday 3"] == 36.0
    assert not any("day" in label for label in ticks(Hours.of(12.0, []), 24))


def test_the_hours_are_the_local_ones_if_all_devices_share_a_time_zone() -> None:
    shared = Hours.of(23.0, [2.0, 2.0])
    assert shared.name == "hour of the day (local time of the devices, UTC+2)"
    assert ticks(shared, 2)["01:00"] == 0.0
    for zones in ([0.0, 1.0], [{"kind": "uniform", "low": -1, "high": 1}]):
        differ = Hours.of(23.0, zones)
        assert differ.name == "hour of the day (UTC; the time zones of the devices differ)"
        assert ticks(differ, 2)["23:00"] == 0.0


@pytest.mark.parametrize("days", [0.5, 1, 3, 30, 400])
def test_there_are_never_too_many_ticks(days: float) -> None:
    moments, labels = Hours.of(7.3, []).ticks(0.0, 1440 * days)
    assert 3 <= len(moments) == len(labels) <= 12


def scenario(rounds: int, round_s: float, **device: Any) -> Scenario:
    group = {
        "name": "phones",
        "count": 4,
        "device": {"profile": "phone", **device},
        "availability": {"kind": "bernoulli", "probability": 0.5},
    }
    return Scenario.model_validate(
        {"name": "day", "seed": 1, "task": {"name": "digits"}, "server": {"rounds": rounds},
         "groups": [group],
         "clock": {"kind": "rounds", "round_s": round_s, "starts_at_h": 22.0}}
    )  # fmt: skip


def test_a_plan_and_the_report_of_its_run_have_the_same_hours(run: RunFolder) -> None:
    planned = draw(plan(scenario(4, 3600.0, time_zone=1.0), LEARNING)).axes[-1]
    run.scenario(
        '[clock]\nkind = "rounds"\nround_s = 3600.0\nstarts_at_h = 22.0\n'
        '[[groups]]\nname = "phones"\n[groups.device]\ntime_zone = 1.0\n'
    )
    run.clients("a", "b")
    for _ in range(4):
        run.round({"a": "folded"}, declined={"b": "battery"}, batteries={"a": 0.5})
    [measured] = charts_of("calls", run.commit())
    labels = [label.get_text() for label in planned.get_xticklabels()]
    assert labels == [label for _, label in measured.x.ticks]
    assert labels[0] == "23:00"
    assert planned.get_xlabel() == measured.x.label


def test_a_plan_of_some_days_counts_them() -> None:
    axes = draw(plan(scenario(48, 3600.0), LEARNING)).axes[-1]
    labels = [label.get_text() for label in axes.get_xticklabels()]
    days = [label.partition("\n")[2] for label in labels if "\n" in label]
    assert days == ["day 2", "day 3"]  # the first tick is the midnight after the start at 22:00


def test_a_plan_draws_a_level_over_each_round() -> None:
    found = plan(scenario(3, 3600.0), LEARNING)
    axes = draw(found).axes[0]
    level = axes.patches[0]
    assert isinstance(level, StepPatch)
    levels, edges, _ = level.get_data()
    assert edges.tolist() == [0, 60, 120, 180]
    np.testing.assert_allclose(levels, found.groups[0].available / 4)
    assert not axes.lines


def test_a_plan_states_a_share_that_never_changes_and_does_not_draw_it() -> None:
    group = {"name": "hosts", "count": 4, "device": {"profile": "always-on"}}
    always = Scenario.model_validate(
        {"name": "flat", "task": {"name": "digits"}, "groups": [group], "server": {"rounds": 5}}
    )
    figure = draw(plan(always, LEARNING))
    assert not figure.axes
    assert figure.get_supxlabel() == (
        "Devices that can be reached: 100.0 % of enrolled in every round\n"
        "Devices that deliver in time when called: 100.0 % of called in every round"
    )
