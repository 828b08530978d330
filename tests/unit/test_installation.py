"""How muster is installed, and what pages and messages say of it."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.common.installation import NAME, VERSION, install_command

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = "|".join(PROJECT["optional-dependencies"])

WRONG = {
    "a package of somebody else": re.compile(
        rf"(?<![\w/.-])muster\[({EXTRAS})\b|pip install (?:-\S+ )*['\"]?muster(?=['\"\s\[`]|$)"
    ),
    "a copy in place of the clone": re.compile(
        r"pip install (?![^\n`]*(?:-e|--editable) )[^\n`]*['\"]?\.\["
    ),
}


def texts() -> Iterator[tuple[str, str]]:
    """The files of the clone that people read or that print messages, by their paths."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=False, capture_output=True, text=True
    ).stdout.splitlines()
    assert "README.md" in listed
    for name in listed:
        path = ROOT / name
        if path.suffix in {".md", ".py", ".toml", ".sh", ".yml", ".yaml", ".template", ""}:
            if path != Path(__file__) and path.is_file():
                yield name, path.read_text(errors="replace")


@pytest.mark.parametrize("mistake", WRONG)
def test_no_page_and_no_message_would_install(mistake: str) -> None:
    found = [
        f"{name}: {match[0]}" for name, text in texts() for match in WRONG[mistake].finditer(text)
    ]
    assert found == []


def test_the_wrong_forms_are_recognised() -> None:
    foreign, copy = WRONG.values()
    assert foreign.search("pip install 'muster[flower]'")
    assert foreign.search("pip install muster\n")
    assert foreign.search("needs the extra `muster[ray]`")
    assert not foreign.search("pip install --no-cache-dir /home/ray/muster[ray]")
    assert not foreign.search("pip install dist/muster_fl-0.1.0-py3-none-any.whl")
    assert copy.search(".venv/bin/pip install '.[flower]'")
    assert not copy.search(".venv/bin/pip install -e '.[flower]'")


def test_name_and_version_are_those_of_the_project() -> None:
    assert (NAME, VERSION) == (PROJECT["name"], PROJECT["version"])


def test_nothing_asks_for_the_version_of_a_distribution_by_its_old_name() -> None:
    old = re.compile(r"""(version|distribution|requires|files)\(["']muster["']\)|package_name=""")
    assert [name for name, text in texts() if name.endswith(".py") and old.search(text)] == []


def test_in_a_clone_the_extra_is_added_to_the_editable_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv/bin/python"))
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "muster-fl"\n')
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    expected = ".venv/bin/python -m pip install -e '.[ray]'"
    assert install_command("ray", clone=tmp_path) == expected
    monkeypatch.chdir(elsewhere)
    python = f"{tmp_path}/.venv/bin/python -m pip"
    assert install_command("ray", clone=tmp_path) == f"{python} install -e '{tmp_path}[ray]'"


def test_from_a_wheel_the_extra_is_that_of_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/env/bin/python")
    wheel = "/downloads/muster_fl-0.1.0-py3-none-any.whl"
    found = install_command("live", clone=tmp_path, wheel=wheel)
    assert found == f"/env/bin/python -m pip install '{wheel}[live]'"


def test_a_folder_of_another_project_is_no_clone(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "mine"\n')
    assert " -e " not in install_command("live", clone=tmp_path, wheel="/w.whl")
