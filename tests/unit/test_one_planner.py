"""Rounds at fixed times are planned in blocks of devices, as the rounds of the server play."""

import sys
from typing import Any

import numpy as np
import pytest

from muster.common.config import validate
from muster.emulator.planning import plan
from muster.emulator.planning.result import Learning, Plan
from muster.emulator.scenario.scenario import Scenario

LEARNING = Learning([10] * 40, parameters=100)
COIN = {"availability": {"kind": "bernoulli", "probability": 0.6}}
SPEEDS = {"device": {"examples_per_s": {"kind": "log-normal", "median": 4, "sigma": 0.5}}}

SCENARIOS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "chance": ({**COIN, "participation": {"drop_out": 0.2, "willing": 0.8}}, {}),
    "selection": (COIN, {"selection": {"kind": "uniform", "k": 7, "over_selection": 1.3}}),
    "deadline": (SPEEDS, {"deadline_s": 2.5}),
    "pace": ({"device": {"examples_per_s": 4, "speed_sigma": 0.4}}, {"deadline_s": 2.5}),
    "slots": ({**COIN, "shared_link": {"slots": 5, "overflow": "subset"}}, {}),
    "shared link": (
        {
            **SPEEDS,
            "link": {"up": "50 kbit/s", "rtt": "100 ms"},
            "shared_link": {"up": "20 kbit/s"},
        },
        {"deadline_s": 4.0},
    ),
    "jitter": (
        {**SPEEDS, "link": {"rtt": "200 ms", "jitter": "400 ms", "jitter_distribution": "pareto"}},
        {"deadline_s": 4.0},
    ),
    "phones": ({"device": {"profile": "phone", "examples_per_s": 2.0}}, {"deadline_s": 30.0}),
}


def planned(name: str) -> Plan:
    group, server = SCENARIOS[name]
    values = {
        "name": "planned",
        "task": "linear",
        "training": {"local_epochs": 1},
        "server": {"rounds": 30, **server},
        "groups": [{"name": "a", "count": 25, **group}, {"name": "b", "count": 15, **COIN}],
    }
    return plan(validate(Scenario, values, "test"), LEARNING)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_servers_rounds_give_the_same_plan(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = planned(name)
    planning = sys.modules["muster.emulator.planning.plan"]
    monkeypatch.setattr(planning, "must_play", lambda scenario: True)
    played = planned(name)
    assert fixed.times_s.tolist() == played.times_s.tolist()
    for one, other in zip(fixed.groups, played.groups, strict=True):
        for field in ("available", "called", "accepted", "delivered", "late", "charge", "fates"):
            found = getattr(one, field), getattr(other, field)
            np.testing.assert_array_equal(*found, err_msg=field)
        np.testing.assert_allclose(one.chance, other.chance, rtol=1e-12)
        for reason, counts in one.reasons.items():
            np.testing.assert_array_equal(counts, other.reasons[reason], err_msg=str(reason))
    late = sum(int(group.late.sum()) for group in fixed.groups)
    assert (late > 0) == (name in ("deadline", "pace", "shared link", "jitter"))
