"""Aggregators and settings that do not fit the mode are refused before anything starts."""

from typing import Any, ClassVar

import pytest

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.emulator.scenario.scenario import Scenario
from muster.server.aggregators import Withholder
from muster.server.aggregators.combinations import excludes
from muster.server.aggregators.fedvarp import FedVarp

BUFFERED: dict[str, Any] = {"kind": "buffered", "k": 2, "concurrency": 4}
ALIKE = {**BUFFERED, "staleness_weight": "constant"}


def refusal(group: dict[str, Any] | None = None, **server: Any) -> str:
    """What is said of a scenario with these settings of the server; empty if it is accepted."""
    table = {
        "name": "test",
        "task": {"name": "linear", "dimension": 3},
        "server": {"rounds": 5, **server},
        "groups": [{"name": "dev", "count": 4, **(group or {})}],
    }
    try:
        validate(Scenario, table, "test")
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("rule", ["importance", "weighted-normalised", "mifa", "fedvarp", "median"])
def test_rules_whose_weights_do_not_fall_with_staleness_say_so(rule: str) -> None:
    aggregator = {"kind": rule, **({"p": [0.25] * 4} if rule.startswith("weighted") else {})}
    said = f"the weights of '{rule}' do not depend on how stale"
    assert said in refusal(aggregator=aggregator, mode=BUFFERED)
    assert refusal(aggregator=aggregator, mode=ALIKE) == ""


@pytest.mark.parametrize(
    "rule", ["fedavg", "fedbuff", "fedasync", "fedadam", "fednova", "multi-krum"]
)
def test_rules_whose_weights_fall_with_staleness_are_accepted(rule: str) -> None:
    assert "how stale" not in refusal(aggregator=rule, mode=BUFFERED)


def test_a_goal_beside_the_number_of_updates_of_a_version_is_refused() -> None:
    assert "server.mode.k is the number of updates" in refusal(goal=3, mode=ALIKE)
    assert refusal(mode=ALIKE) == ""


@pytest.mark.parametrize("mode", [ALIKE, "opportunistic"])
def test_slots_are_granted_for_a_round_so_updates_must_not_outlive_theirs(mode: Any) -> None:
    slots = {"shared_link": {"slots": 2, "overflow": "collide"}}
    assert "server.mode: a channel slot is granted for the" in refusal(slots, mode=mode)
    assert refusal(mode=mode) == ""
    assert refusal(slots) == ""


class Masked(FedVarp):
    """A rule that says that it works with masks, although it remembers updates."""

    masks: ClassVar[bool] = True


def test_a_rule_that_remembers_updates_does_not_work_with_masks() -> None:
    assert excludes(Masked(kind="masked").requires(), Withholder.MASK)
