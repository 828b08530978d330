"""`muster init`."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from muster.emulator.cli.commands import main
from muster.emulator.scenario.reading import read_scenario

FILES = ["README.md", "my_rule.py", "pytest.ini", "scenario.toml", "test_my_rule.py"]


def test_a_project_is_made_in_the_folder_that_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "a/b"
    done = CliRunner().invoke(main, ["init", str(folder)])
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in folder.iterdir()) == FILES
    assert done.output.splitlines()[0] == f"made {folder / 'README.md'}"
    scenario = read_scenario(folder / "scenario.toml")
    assert scenario.server.aggregator.kind == "my_rule:SquareRoot"


def test_without_a_name_it_is_made_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.txt").write_text("mine", encoding="utf-8")
    assert CliRunner().invoke(main, ["init"]).exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*FILES, "other.txt"])


def test_no_file_is_overwritten_and_then_none_is_written(tmp_path: Path) -> None:
    mine = tmp_path / "my_rule.py"
    mine.write_text("mine", encoding="utf-8")
    done = CliRunner().invoke(main, ["init", str(tmp_path)])
    assert done.exit_code == 2
    assert "already has my_rule.py, and muster init overwrites no file" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["my_rule.py"]
    assert mine.read_text(encoding="utf-8") == "mine"


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = CliRunner().invoke(main, ["init", str(tmp_path / "file/project")])
    assert done.exit_code == 2
    assert "cannot be written" in done.output
