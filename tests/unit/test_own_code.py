"""Where code of the user's own is imported from."""

import importlib
import json
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


def test_of_modules_of_one_name_that_of_the_newest_scenario_is_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    for name in ("first", "second"):
        package = tmp_path / name / "shared_name"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f"import json\nFROM = {name!r}\n")
        (package / "part.py").write_text(f"FROM = {name!r}\n")
    for name in ("first", "second", "second", "first"):
        make_importable(str(tmp_path / name))
        part = importlib.import_module("shared_name.part")
        assert (sys.modules["shared_name"].FROM, part.FROM) == (name, name)
        assert os.environ["PYTHONPATH"].split(os.pathsep)[0] == str(tmp_path / name)
        assert "json" in sys.modules


def test_a_folder_with_a_place_of_its_own_keeps_it_and_its_modules(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "json.py").write_text("")
    (tmp_path / "the_users.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}last")
    users = importlib.import_module("the_users")
    before = list(sys.path)
    for _ in range(2):
        make_importable(str(tmp_path))
    assert sys.path == before
    assert os.environ["PYTHONPATH"] == f"{tmp_path}{os.pathsep}last"
    assert importlib.import_module("the_users") is users
    assert sys.modules["json"] is json


def test_a_module_in_a_folder_below_another_scenarios_is_loaded_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "of_the_inner.py").write_text("")
    for folder in (tmp_path, inner):
        make_importable(str(folder))
    loaded = importlib.import_module("of_the_inner")
    make_importable(str(inner))
    assert importlib.import_module("of_the_inner") is loaded
