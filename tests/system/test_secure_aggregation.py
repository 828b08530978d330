"""Secure aggregation over real processes: the model is that of the updates, whatever is killed."""

import os
from typing import Any

import pytest

from muster.testing import KillAt, RealFleet, assert_never_counted_twice, assert_same_model

KILLED = KillAt("server", "received", 2), KillAt("dev-0002", "received", 3)


def settings(**server: Any) -> dict[str, Any]:
    return {
        "name": "secure",
        "seed": 7,
        "task": {"name": "linear", "dimension": 5, "examples_per_client": 16},
        "training": {"learning_rate": 0.05},
        "server": {"rounds": 4, "minimum": 3, **server},
        "launch": {"restarts": 100},
        "groups": [{"name": "dev", "count": 4}],
    }


@pytest.mark.timeout(120)
def test_kills_leave_the_model_of_the_updates(real_fleet: RealFleet) -> None:
    of_updates = real_fleet.run(settings())
    secure = real_fleet.run(settings(secure={}), *KILLED)
    assert_same_model(secure, of_updates)
    assert_never_counted_twice(secure)
    assert set(secure.ledger.contributions["bytes_up"]) == {0}


STEPS = "keys", "shares", "update", "opening"
PROCESSES = "dev-0000", "server", "dev-0001", "dev-0002", "server", "dev-0003"
KILLS = 40
"""In one run, one in each round: ten in each step."""
RUNS = int(os.environ.get("MUSTER_SECURE_RUNS", "5"))
KINDS: list[dict[str, Any]] = [{}, {"range": 0.5, "rounding": "stochastic"}]
"""Exact sums, and sums on a grid."""


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", range(RUNS))
def test_kills_in_every_step_leave_the_model_of_the_updates(
    first: int, real_fleet: RealFleet
) -> None:
    """200 kills, 50 in each step; more with MUSTER_SECURE_RUNS."""
    kills = [
        KillAt(PROCESSES[(number + first) % 6], "secure_step", number + 2, STEPS[number % 4])
        for number in range(KILLS)
    ]
    scenario, kind = settings(rounds=KILLS + 2), KINDS[first // len(PROCESSES) % 2]
    scenario["seed"] = 7 + first
    plain = {**scenario, "server": {**scenario["server"], "secure": {**kind, "plain": True}}}
    padded = {**scenario, "server": {**scenario["server"], "secure": kind}}
    unkilled = real_fleet.run(plain if kind else scenario)
    killed = real_fleet.run(padded, *kills)
    assert_same_model(killed, unkilled)
    assert_never_counted_twice(killed)
