"""Whole runs in virtual time: with secure sums, a run makes the model of a run without them, bit
for bit, whatever dies."""

from typing import Any

import pytest

from muster.common.config import validate
from muster.emulator.planning import plan
from muster.emulator.report.plan_tables import describe
from muster.emulator.scenario.scenario import Scenario
from muster.testing import KillAt, SimulatedFleet, assert_never_counted_twice, assert_same_model

SECURE = {"rounds": 3, "minimum": 3, "secure": {"drop_out": 0.2, "collusion": 0.0}}
PLAIN = {"rounds": 3, "minimum": 3}


def settings(server: dict[str, Any], **sections: Any) -> dict[str, Any]:
    return {
        "name": "secure",
        "seed": 7,
        "task": {"name": "linear", "dimension": 5, "heterogeneity": 1.0, "examples_per_client": 16},
        "training": {"learning_rate": 0.05, "local_steps": 2, "batch_size": 8},
        "server": server,
        "groups": [
            {"name": "small", "count": 3, "link": {"compression": {"kind": "top-k", "ratio": 0.4}}},
            {"name": "dev", "count": 3},
        ],
        **sections,
    }


@pytest.mark.parametrize("rule", ["fedavg", "fedadam"])
def test_secure_sums_make_the_model_of_updates(rule: str, fleet: SimulatedFleet) -> None:
    of_updates = fleet.run(settings({**PLAIN, "aggregator": rule}))
    of_sums = fleet.run(settings({**SECURE, "aggregator": rule}))
    assert_same_model(of_sums, of_updates)
    assert set(of_sums.ledger.contributions["outcome"]) == {"folded"}
    assert set(of_sums.ledger.contributions["bytes_up"]) == {0}


def test_a_plan_says_how_secrets_are_shared() -> None:
    found = describe(plan(validate(Scenario, settings(SECURE), "secure")))
    *_, head, row = found.partition("Secure sums")[2].partition("\n\n")[0].splitlines()
    assert head.split("  ")[-1] == "too few stay"
    assert row.split() == ["6", "5", "4", "672", "0.099"]
    assert "Secure sums" not in describe(plan(validate(Scenario, settings(PLAIN), "plain")))


@pytest.mark.parametrize("event", ["round_opened", "received", "round_committed"])
@pytest.mark.parametrize("process", ["server", "dev-0001"])
def test_a_death_changes_nothing(process: Any, event: Any, fleet: SimulatedFleet) -> None:
    undisturbed = fleet.run(settings(PLAIN))
    killed = fleet.run(settings(SECURE), KillAt(process, event, 2))
    assert_same_model(killed, undisturbed)
    assert_never_counted_twice(killed)
