"""Secure aggregation over real processes: the model is that of the updates, whatever is killed."""

from typing import Any

import pytest

from muster.testing import KillAt, RealFleet, assert_never_counted_twice, assert_same_model

KILLS = KillAt("server", "received", 2), KillAt("dev-0002", "received", 3)


def settings(**server: Any) -> dict[str, Any]:
    return {
        "name": "secure",
        "seed": 7,
        "task": {"name": "linear", "dimension": 5, "examples_per_client": 16},
        "training": {"learning_rate": 0.05},
        "server": {"rounds": 4, "minimum": 3, **server},
        "groups": [{"name": "dev", "count": 4}],
    }


@pytest.mark.timeout(120)
def test_kills_leave_the_model_of_the_updates(real_fleet: RealFleet) -> None:
    of_updates = real_fleet.run(settings())
    secure = real_fleet.run(settings(secure={}), *KILLS)
    assert_same_model(secure, of_updates)
    assert_never_counted_twice(secure)
    assert set(secure.ledger.contributions["bytes_up"]) == {0}
