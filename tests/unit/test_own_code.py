"""Where code of the user's own is imported from, and which code it is."""

import ast
import hashlib
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from muster.common.errors import ConfigError
from muster.common.own_code import announce, modules_of, use
from muster.common.processes import child_command
from muster.emulator.scenario.own_code import settle_modules

ROOT = Path(__file__).parents[2]

Files = Callable[..., Path]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Makes a folder with these files, by path."""

    def make(name: str, contents: Mapping[str, str]) -> Path:
        for path, text in contents.items():
            file = tmp_path / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return tmp_path / name

    return make


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


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


# --- from where it is imported -------------------------------------------------------------------


@pytest.mark.parametrize("place", ["", "the folder of a script", "a folder of PYTHONPATH"])
def test_the_folder_of_the_scenario_comes_before(
    place: str, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = files("mine", {"rule_x.py": "FROM = 'mine'\n"})
    other = files("other", {"rule_x.py": "FROM = 'other'\n"})
    monkeypatch.chdir(other)
    if "PYTHONPATH" in place:
        monkeypatch.setenv("PYTHONPATH", str(other))
    sys.path.insert(0, str(other) if place else "")
    use(str(mine))
    assert importlib.import_module("rule_x").FROM == "mine"
    assert list(modules_of(str(mine), ["rule_x"])) == ["rule_x.py"]


def test_of_modules_of_one_name_that_of_the_newest_scenario_is_imported(files: Files) -> None:
    for name in ("first", "second"):
        text = f"FROM = {name!r}\n"
        files(
            name, {"shared_name/__init__.py": "import json\n" + text, "shared_name/part.py": text}
        )
    for name in ("first", "second", "second", "first"):
        use(str(files(name, {})))
        part = importlib.import_module("shared_name.part")
        assert (sys.modules["shared_name"].FROM, part.FROM) == (name, name)
        assert "json" in sys.modules


def test_a_module_that_has_changed_is_loaded_anew_although_its_bytecode_looks_valid(
    files: Files,
) -> None:
    for number in (1, 2):
        folder = files("mine", {"rule_y.py": f"NUMBER = {number}\n"})
        os.utime(folder / "rule_y.py", (1e9, 1e9))  # and its size is the same
        use(str(folder))
        assert importlib.import_module("rule_y").NUMBER == number
    assert not (folder / "__pycache__").exists()


def test_the_standard_library_and_what_is_loaded_stay(files: Files) -> None:
    folder = files("mine", {"json.py": "", "the_users.py": ""})
    sys.path.insert(0, str(folder))
    users = importlib.import_module("the_users")
    for _ in range(2):
        use(str(folder))
    assert importlib.import_module("the_users") is users
    assert sys.modules["json"] is json


def test_a_module_in_a_folder_below_another_scenarios_is_loaded_once(files: Files) -> None:
    outer = files("outer", {"inner/of_the_inner.py": ""})
    for folder in (outer, outer / "inner"):
        use(str(folder))
    loaded = importlib.import_module("of_the_inner")
    use(str(outer / "inner"))
    assert importlib.import_module("of_the_inner") is loaded


# --- which code it is ----------------------------------------------------------------------------


def test_the_modules_are_those_that_are_named_and_all_that_they_import(files: Files) -> None:
    contents = {
        "rule_z.py": "import json, pack_z.deep\ndef later():\n    from helper_z import x\n",
        "helper_z.py": "x = 1\n",
        "pack_z/__init__.py": "from . import beside\n",
        "pack_z/beside.py": "import importlib; importlib.import_module('named_z')\n",
        "pack_z/deep.py": "",
        "named_z.py": "",
        "unused_z.py": "",
        "data/part.py": "",
    }
    folder = files("mine", contents)
    use(str(folder))
    importlib.import_module("rule_z")
    found = modules_of(str(folder), ["rule_z", "data.part", "json", "there_is_none"])
    assert found == {n: sha256(t) for n, t in sorted(contents.items()) if n != "unused_z.py"}


@pytest.mark.parametrize(
    ("named", "why"),
    [
        (["random"], "the standard library"),
        (["rule_a"], "random.py"),
        (["pytest"], "pytest/__init__.py"),
        (["only_here"], "other/only_here.py"),
        (["rule_b"], "other/only_here.py"),
    ],
)
def test_a_module_that_processes_would_import_from_different_places_is_refused(
    named: list[str], why: str, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = files("mine", {"random.py": "", "pytest.py": "", "rule_a.py": "import random\n",
                            "rule_b.py": "import only_here\n"})  # fmt: skip
    monkeypatch.chdir(files("other", {"only_here.py": ""}))
    sys.path.insert(0, "")
    use(str(folder))
    with pytest.raises(ConfigError, match=r"expected .*found") as refused:
        modules_of(str(folder), named)
    assert why in str(refused.value)


def test_a_module_that_has_changed_since_it_was_imported_is_refused(files: Files) -> None:
    folder = files("mine", {"rule_c.py": "A = 1\n"})
    use(str(folder))
    importlib.import_module("rule_c")
    files("mine", {"rule_c.py": "A = 2\n"})
    with pytest.raises(ConfigError, match=r"rule_c\.py has changed since this process imported"):
        modules_of(str(folder), ["rule_c"])


# --- in the programs of a run --------------------------------------------------------------------


@pytest.fixture
def program(files: Files, monkeypatch: pytest.MonkeyPatch) -> Callable[[], tuple[str, str]]:
    """Starts a program of a run, `program_d`, from a folder that has another one of this name;
    returns what it prints and its last line of errors."""
    monkeypatch.chdir(files("current", {"program_d.py": "print('current')\n"}))

    def start() -> tuple[str, str]:
        done = subprocess.run(child_command("program_d"), capture_output=True, text=True)
        return done.stdout.strip(), (done.stderr.strip().splitlines() or [""])[-1]

    return start


def test_what_is_installed_below_the_folder_of_a_scenario_is_not_own_code(
    files: Files, program: Callable[[], tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the root of a clone, which has muster and its environment below it."""
    imports = (
        "import muster.client.life.settings, muster.server.settings.server, numpy.linalg\n"
        "import google.protobuf.message  # google is a namespace package\nprint('all')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(files("stated", {"program_d.py": imports})))
    for above in (ROOT, Path(sys.prefix), ROOT / "server"):
        announce(
            str(above), modules_of(str(above), ["muster.server.settings.server", "numpy.linalg"])
        )
        assert program() == ("all", "")


PROGRAM = {"program_d.py": "from help_d import NAME\nprint(NAME)\n", "help_d.py": "NAME = 'mine'\n"}


@pytest.mark.parametrize("path", ["", f"{os.pathsep}somewhere", None])
def test_a_program_imports_nothing_from_the_current_directory(
    path: str | None, program: Callable[[], tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    if path is not None:
        monkeypatch.setenv("PYTHONPATH", path)
    announce(None, {})
    printed, error = program()
    assert printed == ""
    assert "No module named" in error


def test_a_program_imports_the_announced_modules(
    files: Files, program: Callable[[], tuple[str, str]]
) -> None:
    folder = str(files("mine", PROGRAM))
    announce(folder, modules_of(folder, ["program_d"]))
    assert program() == ("mine", "")


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"help_d.py": "NAME = 'more'\n"}, "help_d.py is not the file with which the run began"),
        ({"program_d.py": "import more_d\n", "more_d.py": ""}, "program_d.py is not the file"),
    ],
)
def test_a_program_refuses_modules_that_have_changed(
    changed: dict[str, str], why: str, files: Files, program: Callable[[], tuple[str, str]]
) -> None:
    folder = str(files("mine", PROGRAM))
    announce(folder, modules_of(folder, ["program_d"]))
    files("mine", changed)
    printed, error = program()
    assert printed == ""
    assert why in error


def test_a_program_refuses_modules_that_were_not_announced(
    files: Files, program: Callable[[], tuple[str, str]]
) -> None:
    hidden = "import importlib\nNAME = importlib.import_module('hidden_d')\n"
    folder = str(files("mine", {**PROGRAM, "help_d.py": hidden, "hidden_d.py": ""}))
    announce(folder, modules_of(folder, ["program_d"]))
    assert "hidden_d.py is not one of the modules that the run has recorded" in program()[1]


def test_no_program_that_is_started_imports_from_the_current_directory() -> None:
    root = Path(__file__).parents[2]
    commands = [
        (path.name, ast.unparse(node))
        for path in root.glob("*/muster/**/*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.List) and "'-m', 'muster." in ast.unparse(node)
    ]
    assert len(commands) >= 2
    assert [command for command in commands if "'-P', '-m'" not in command[1]] == []
