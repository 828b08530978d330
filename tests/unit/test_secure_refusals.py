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
        ({"privacy": {"clip": 1.0, "noise": 1.0}}, "expected where = 'sum' or 'device'"),
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
        (
            {"mask": {"kind": "random", "schedule": "drawn"}},
            "draws a part of its own; expected groups.mask with schedule = 'static'",
        ),
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


def noisy(noise: float = 1.0, server: dict[str, Any] | None = None, **secure: Any) -> str:
    """What is said of a scenario whose devices add noise to sums of up to 40 updates."""
    privacy = {"clip": 0.5, "noise": noise, "where": "sum"}
    values = {"minimum": 20, "secure": {"range": 0.5, **secure}, "privacy": privacy}
    return refusal({**values, **(server or {})}, {"count": 40})


def test_devices_may_add_noise_to_secure_sums_on_a_grid() -> None:
    assert noisy() == ""
    assert noisy(bits=9) == ""
    assert noisy(0.0) == ""


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ({"secure": None}, "without server.secure the server gets every update"),
        ({"secure": {}}, "server.secure.range: with server.privacy.where = 'sum'"),
        ({"secure": {"plain": True}}, "server.secure.range: with server.privacy.where = 'sum'"),
        ({"aggregator": "fednova"}, "'fednova' lives on weights of its own"),
        ({"evaluate_on": "devices"}, "where = 'sum' hides updates alone"),
        ({"guard": {"max_norm": 5.0}}, "how many it refuses depends on the data"),
        ({"minimum": 3, "secure": {"range": 1.0, "collusion": 0.1}}, "expected at least 5"),
    ],
)
def test_a_server_whose_sums_have_no_room_for_noise_is_refused(
    server: dict[str, Any], expected: str
) -> None:
    assert expected in noisy(server=server)


def test_a_grid_that_is_too_small_or_too_coarse_for_the_noise_is_refused() -> None:
    assert "leaves 3 bits to an entry" in noisy(1e6, range=0.02)
    assert noisy(1e6, range=0.02, bits=20) == ""  # of 8 bytes
    assert "leaves 52 bits to an entry" in noisy(200.0, bits=53)
    assert "a standard deviation of 1.51 steps of the grid; expected 4 to" in noisy(0.1, bits=8)
    assert "Take fewer bits" in noisy(1.0, bits=53)
    assert "every update has the weight 1, found 0.5" in noisy(largest_weight=0.5)
    assert noisy(largest_weight=2.0) == ""


def test_faults_of_updates_on_their_way_are_refused() -> None:
    fault = {"name": "f", "do": "replay", "when": {"round": 2}, "for_rounds": 1}
    assert "with server.secure none travels" in refusal({}, {}, faults=[fault])
