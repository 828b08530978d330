"""Where code of the user's own is imported from."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from muster.emulator.scenario.own_code import make_importable, settle_modules


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"server": {"aggregator": {"kind": "mine:Rule"}}}, "/home/x"),
        ({"groups": [{"availability": {"kind": "pkg.mine:Rule"}}]}, "/home/x"),
        ({"server": {"aggregator": "mine:Rule"}, "modules": "code"}, "/home/x/code"),
        ({"modules": "/elsewhere"}, "/elsewhere"),
        ({"server": {"aggregator": "fedavg"}, "name": "12:30"}, None),
        ({"groups": [{"link": {"up": "2 Mbit/s"}}]}, None),
    ],
)
def test_the_folder_is_that_of_the_scenario_unless_it_is_stated(
    values: dict[str, Any], expected: str | None
) -> None:
    settle_modules(values, Path("/home/x/scenario.toml"))
    assert values.get("modules") == expected


def test_children_can_import_it_too_and_nothing_before_it_is_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", ["first"])
    monkeypatch.setenv("PYTHONPATH", f"one{os.pathsep}two")
    for _ in range(2):
        make_importable("mine")
    assert sys.path == ["first", "mine"]
    assert os.environ["PYTHONPATH"].split(os.pathsep) == ["one", "two", "mine"]
