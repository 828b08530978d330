"""The page on testing an aggregator: its files are those of `muster init`, its commands do what it
says, and its table has all laws."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from muster.emulator.project import TEMPLATE
from muster.testing import LAWS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
PROGRAMS = {
    "muster": [sys.executable, "-c", "from muster.cli.commands import main; main()"],
    "pytest": [sys.executable, "-m", "pytest", "-o", "asyncio_default_fixture_loop_scope=function"],
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def play(command: str, folder: Path) -> str:
    """The output of a command of the page."""
    program, *arguments = [word.strip('"') for word in re.findall(r'"[^"]+"|\S+', command)]
    done = subprocess.run(
        [*PROGRAMS[program], *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The project of the page, as its commands make it."""
    made, entered, _ = blocks("sh")[0].splitlines()
    play(made, tmp_path)
    return tmp_path / entered.removeprefix("cd ")


def test_the_page_shows_the_test_as_it_is() -> None:
    template = TEMPLATE / "test_my_rule.py.template"
    assert blocks("python")[0] == template.read_text(encoding="utf-8")


def test_the_tests_of_the_project_pass_as_the_page_says(project: Path) -> None:
    output = play(blocks("sh")[0].splitlines()[-1], project)
    assert blocks("text")[0].strip() in output, output


def test_the_same_test_passes_over_real_processes(project: Path) -> None:
    output = play("pytest -q -m real_fleet", project)
    assert "1 passed" in output, output


def test_the_mistake_of_the_page_breaks_the_laws_that_it_names(project: Path) -> None:
    rule, test = project / "my_rule.py", project / "test_my_rule.py"
    rule.write_text(f"{rule.read_text()}\n\n{blocks('python')[1]}", encoding="utf-8")
    changed = test.read_text().replace("rule = SquareRoot(", "rule = Momentum(")
    test.write_text(changed.replace("import SquareRoot", "import Momentum, SquareRoot"))
    output = play("pytest -q -rf -k TestLaws", project)
    failed = set(re.findall(r"^FAILED test_my_rule.py::TestLaws::(\w+)", output, re.MULTILINE))
    assert failed == {LAWS["duplicates"], LAWS["crash"]}, output
    assert blocks("text")[1].strip() in output, output


def test_the_table_has_all_laws() -> None:
    table = PAGE.partition("| law | what must hold |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `([\w-]+)`", table, re.MULTILINE)) == LAWS.keys()
