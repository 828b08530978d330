"""Settings with which processes cannot send sums are refused before anything starts."""

from typing import Any

import pytest

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.emulator.scenario.scenario import Scenario

PACK: dict[str, Any] = {
    "name": "dev",
    "count": 4,
    "devices_per_process": 2,
    "partial_sums": True,
}
CORRUPT = {"name": "noise", "do": "corrupt", "when": {"round": 2}, "for_rounds": 1}


def refusal(group: dict[str, Any], **sections: Any) -> str:
    """What is said of a scenario with this group; empty if it is accepted."""
    table = {
        "name": "test",
        "task": {"name": "linear", "dimension": 3},
        "server": {"rounds": 5},
        "groups": [{**PACK, **group}],
        **sections,
    }
    try:
        validate(Scenario, table, "test")
    except ConfigError as error:
        return str(error)
    return ""


def test_packs_may_send_sums() -> None:
    assert refusal({}) == ""


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ({"devices_per_process": 1}, "groups[0].partial_sums: a process adds up the updates of"),
        ({"mask": "blocks"}, "groups[0].partial_sums: a sum of whole updates is sent"),
        (
            {"participation": {"kind": "rational"}},
            "groups[0].partial_sums: rational devices judge the model anew",
        ),
    ],
)
def test_a_group_that_cannot_send_sums_is_refused(group: dict[str, Any], expected: str) -> None:
    assert expected in refusal(group)
    assert expected not in refusal({**group, "partial_sums": False})


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ({"keep_updates": True}, "server.keep_updates: with groups.partial_sums"),
        ({"mode": "opportunistic", "deadline_s": 60}, "expected the synchronous mode"),
        ({"aggregator": "median"}, "'median' needs the updates themselves"),
        ({"aggregator": "krum"}, "'krum' needs the updates themselves"),
        ({"aggregator": "mifa"}, "'mifa' needs the updates themselves"),
    ],
)
def test_a_server_that_needs_the_updates_is_refused(server: dict[str, Any], expected: str) -> None:
    table = {"rounds": 5, **server}
    assert expected in refusal({}, server=table)
    assert expected not in refusal({"partial_sums": False}, server=table)


def test_a_rule_that_learns_from_participation_needs_lockstep() -> None:
    server = {"rounds": 5, "deadline_s": 60, "aggregator": "participation-ipw"}
    wall = {"clock": {"kind": "wall"}, "server": server}
    assert "expected clock.kind = 'rounds' with groups.partial_sums" in refusal({}, **wall)
    assert "with groups.partial_sums" not in refusal({}, server=server)


def test_faults_of_the_way_of_updates_are_refused() -> None:
    expected = "corrupt damages updates on their way, but those of group 'dev' stay in their"
    assert expected in refusal({}, faults=[CORRUPT])
    assert refusal({"partial_sums": False}, faults=[CORRUPT]) == ""
