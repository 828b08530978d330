"""The energy of a plan is that of its run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from muster.common.config import validate
from muster.emulator.planning import plan
from muster.emulator.planning.result import Learning
from muster.emulator.records.account import Account
from muster.emulator.records.energy import JOULE_UJ, energy_of
from muster.emulator.report.plan_tables import describe, totals_of
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.whole_run import simulate_run

PHONES: dict[str, Any] = {
    "name": "phones",
    "count": 5,
    "device": {"profile": "phone", "examples_per_s": 0.2},
    "participation": {"drop_out": 0.2},
    "link": {"up": "20 kbit/s", "rtt": "300 ms", "jitter": "50 ms"},
}
POWER = {"idle_w": 2.0, "training_w": 3.0, "sending_w": 1.0}
BOXES = {
    "name": "boxes",
    "count": 3,
    "device": {"power": POWER, "examples_per_s": 4.0},
    "availability": {"kind": "bernoulli", "probability": 0.7},
}


GROUPS = (PHONES, BOXES)

SYNCHRONOUS = {"kind": "synchronous"}
MODES: list[tuple[str, dict[str, Any]]] = [
    ("rounds", SYNCHRONOUS),
    ("modelled", SYNCHRONOUS),
    ("rounds", {"kind": "opportunistic"}),
    ("modelled", {"kind": "buffered", "k": 3}),
]


def scenario(mode: dict[str, Any], groups: Sequence[Any] = GROUPS, **clock: Any) -> Scenario:
    values = {
        "name": "energy",
        "seed": 3,
        "clock": {"round_s": 600, **clock},
        "task": {"name": "linear", "dimension": 5},
        "training": {"local_epochs": 1},
        "server": {"rounds": 12, "deadline_s": 500.0, "mode": mode},
        "energy": {},
        "groups": list(groups),
    }
    return validate(Scenario, values, "test")


@pytest.mark.parametrize(("clock", "mode"), MODES)
def test_the_plan_has_the_joules_of_every_round_of_the_run(
    clock: str, mode: dict[str, Any], tmp_path: Path
) -> None:
    planned = scenario(mode, kind=clock)
    found = plan(planned, Learning.of(planned))
    folder = tmp_path / "run"
    simulate_run(planned, folder)
    with Account(folder) as account:
        energy = energy_of(account)
    assert energy is not None
    for group in found.groups:
        assert group.joules is not None
        of_group = energy[energy["group"] == group.name].groupby("round")["total_uj"].sum()
        of_rounds = of_group.reindex(range(1, len(group.joules) + 1), fill_value=0) / JOULE_UJ
        assert list(group.joules) == pytest.approx(list(of_rounds), abs=1e-4)
        assert group.joules.sum() > 0
    assert totals_of(found)["groups"][0]["joules"] > 0
    assert "Energy of the calls that devices accept" in describe(found)


def test_on_the_wall_clock_devices_are_idle_until_the_deadline() -> None:
    boxes = [{**BOXES, "availability": {"kind": "always"}}]
    waiting = scenario(SYNCHRONOUS, boxes, kind="wall")
    exact = scenario(SYNCHRONOUS, boxes, kind="rounds", round_s=500)
    [found], [expected] = (plan(each, Learning.of(each)).groups for each in (waiting, exact))
    assert found.joules is not None
    assert expected.joules is not None
    assert list(found.joules) == pytest.approx(list(expected.joules))
