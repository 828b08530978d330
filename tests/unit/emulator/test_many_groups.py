"""Scenarios with many groups."""

import sys
from typing import Any

import pytest

from muster.common.config import validate
from muster.emulator.scenario.scenario import Scenario


def calls_of_a_check(groups: int) -> int:
    """How many calls of Python and C it takes to check a scenario."""
    values: dict[str, Any] = {
        "name": "many",
        "task": {"name": "digits"},
        "clock": {"kind": "wall"},
        "server": {"rounds": 2, "deadline_s": 5},
        "groups": [
            {"name": f"g{number}", "count": 1, "link": {"down": "1 Mbit/s"}}
            for number in range(groups)
        ],
    }
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        validate(Scenario, values, "test")
    finally:
        sys.setprofile(None)
    return calls


def test_the_work_of_a_check_grows_as_the_number_of_groups() -> None:
    calls_of_a_check(1)  # imports and caches
    one, two, three = (calls_of_a_check(groups) for groups in (100, 200, 300))
    assert three - two == pytest.approx(two - one, rel=0.02)
