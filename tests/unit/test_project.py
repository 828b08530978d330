"""`muster init`: projects and examples."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from muster.cli.commands import main
from muster.emulator.project.examples import EXAMPLES, examples
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


def init(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["init", *arguments])


@pytest.mark.parametrize("name", [example.name for example in examples()])
def test_an_example_can_be_read_where_it_is_written_to(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    done = init("--example", name, str(tmp_path))
    assert done.exit_code == 0, done.output
    scenario = tmp_path / f"{Path(name).name}.toml"
    assert done.output.splitlines()[-1] == f"try: muster run {scenario}"
    original = read_scenario(EXAMPLES / f"{name}.toml")
    assert read_scenario(scenario).groups == original.groups


def test_an_example_comes_with_what_it_needs_and_with_nothing_else(tmp_path: Path) -> None:
    assert init("--example", "flower/digits", str(tmp_path)).exit_code == 0
    made = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    app = EXAMPLES / "flower/app"
    assert made == {Path("digits.toml"), Path("app/pyproject.toml")} | {
        Path("app") / path.relative_to(app) for path in app.glob("digits_app/*.py")
    }


def test_an_example_overwrites_no_file(tmp_path: Path) -> None:
    mine = tmp_path / "own_task.py"
    mine.write_text("mine", encoding="utf-8")
    done = init("--example", "own/own_task", str(tmp_path))
    assert done.exit_code == 2
    assert "already has own_task.py" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["own_task.py"]
    assert mine.read_text(encoding="utf-8") == "mine"


def test_an_unknown_example_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    done = init("--example", "own", str(tmp_path))
    assert done.exit_code == 2
    assert "there is no example called 'own'" in done.output
    assert "own/own_task" in done.output
    assert list(tmp_path.iterdir()) == []


def test_the_examples_are_listed_and_nothing_is_made(tmp_path: Path) -> None:
    done = init("--list", str(tmp_path / "none"))
    assert done.exit_code == 0
    assert {line.split()[0] for line in done.output.splitlines()} == {
        path.relative_to(EXAMPLES).with_suffix("").as_posix()
        for path in EXAMPLES.rglob("*.toml")
        if path.name != "pyproject.toml"
    }
    assert not (tmp_path / "none").exists()
