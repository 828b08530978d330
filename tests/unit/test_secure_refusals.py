"""Settings with which there are no secure sums are refused before anything starts."""

from typing import Any

import pytest

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.emulator.scenario.scenario import Scenario


def refusal(server: dict[str, Any], group: dict[str, Any], **sections: Any) -> str:
    """What is said of a scenario; empty if it is accepted."""
    table = {
        "name": "test",
        "task": {"name": "linear", "dimension": 3},
        "server": {"rounds": 5, "minimum": 3, "secure": {}, **server},
        "groups": [{"name": "dev", "count": 4, **group}],
        **sections,
    }
    try:
        validate(Scenario, table, "test")
    except ConfigError as error:
        return str(error)
    return ""


def test_a_synchronous_fleet_may_have_secure_sums() -> None:
    assert refusal({}, {}) == ""


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ({"minimum": 2}, "server.secure: from the sum of two updates"),
        ({"aggregator": "median"}, "with server.secure the server gets only their sum"),
        ({"aggregator": "feduca"}, "weighs updates when the round has closed"),
        ({"keep_updates": True}, "server.keep_updates: with server.secure"),
        ({"mode": "opportunistic", "deadline_s": 60}, "expected the synchronous mode"),
        ({"privacy": {"clip": 1.0, "noise": 1.0}}, "expected where = 'device'"),
        ({"secure": {"bits": 12}}, "bits: exact sums have no grid; set range too"),
        ({"secure": {"rounding": "nearest"}}, "rounding: exact sums have no grid"),
        ({"secure": {"range": 1.0, "bits": 3}}, "server.secure.bits: expected at least 4"),
        ({"secure": {"drop_out": 0.45, "collusion": 0.2}}, "2 · drop_out + collusion below 1"),
    ],
)
def test_a_server_without_secure_sums_is_refused(server: dict[str, Any], expected: str) -> None:
    assert expected in refusal(server, {})


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ({"devices_per_process": 2, "partial_sums": True}, "of a process hides its own update"),
        ({"mask": "blocks"}, "train different parts of the model; leave out groups.mask"),
        ({"participation": {"kind": "rational"}}, "rational devices judge the model anew"),
        ({"shared_link": {"slots": 1}}, "but none for the steps of server.secure"),
    ],
)
def test_a_group_without_secure_sums_is_refused(group: dict[str, Any], expected: str) -> None:
    assert expected in refusal({}, group)


def test_sums_that_no_number_holds_are_refused() -> None:
    assert refusal({"secure": {"range": 1.0, "bits": 53}}, {"count": 2048}) == ""
    expected = "a sum of 2,049 updates with entries of 53 bits is longer than 64 bits"
    assert expected in refusal({"secure": {"range": 1.0, "bits": 53}}, {"count": 2049})


def test_faults_of_updates_on_their_way_are_refused() -> None:
    fault = {"name": "f", "do": "replay", "when": {"round": 2}, "for_rounds": 1}
    assert "with server.secure none travels" in refusal({}, {}, faults=[fault])
