"""What the pages say is so: examples are valid, and commands exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from muster.cli.commands import main
from muster.emulator.project.examples import examples
from muster.emulator.scenario.reading import read_scenario
from muster.server.aggregators import BUILT_IN

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "deploy").glob("*.md")])

MOST_WORDS_OF_THE_README = 1000
MOST_LINES_OF_AN_AGGREGATOR = 12


def blocks(language: str, page: str = "README.md", under: str = "# ") -> list[str]:
    """The blocks of a language in a page, below the first heading that begins with `under`."""
    text = "\n" + (ROOT / page).read_text(encoding="utf-8")
    text = text.partition(f"\n{under}")[2]
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


OWN = "## Your own aggregator"
SCENARIO = blocks("toml", under="## A scenario")[0]


def test_the_scenario_of_the_readme_is_valid(tmp_path: Path) -> None:
    file = tmp_path / "scenario.toml"
    file.write_text(SCENARIO, encoding="utf-8")
    assert read_scenario(file).devices == 10


@pytest.mark.parametrize(
    ("page", "setting"), [("README.md", {}), ("docs/aggregators.md", {"floor": 16})]
)
def test_an_own_aggregator_fits_into_the_scenario(
    page: str, setting: dict[str, float], tmp_path: Path
) -> None:
    (tmp_path / "my_rules.py").write_text(blocks("python", page, OWN)[0], encoding="utf-8")
    file = tmp_path / "scenario.toml"
    own = blocks("toml", page, OWN)[0]
    file.write_text(SCENARIO.replace('[server.aggregator]\nkind = "fedavg"\n', own))
    aggregator = read_scenario(file).server.aggregator.model_dump()
    assert aggregator == {"kind": "my_rules:SquareRoot", **setting}


def test_tables_of_other_pages_fit_into_the_scenario(tmp_path: Path) -> None:
    file = tmp_path / "scenario.toml"
    (launch,) = blocks("toml", "docs/reliability.md", "## Try it")
    file.write_text(f"{SCENARIO}\n{launch}")
    assert read_scenario(file).launch.restarts == 20
    fleet = blocks("toml", "docs/performance.md", "## Larger fleets")[0]
    file.write_text(SCENARIO[: SCENARIO.index("[[groups]]")] + fleet)
    larger = read_scenario(file)
    assert (larger.devices, larger.processes) == (10_000, 10)
    assert larger.groups[0].link.compression.kind == "int8"


def test_the_readme_is_short() -> None:
    assert len(README.split()) <= MOST_WORDS_OF_THE_README


def test_an_aggregator_of_ones_own_is_short() -> None:
    assert len(blocks("python")[0].splitlines()) <= MOST_LINES_OF_AN_AGGREGATOR


def test_the_page_of_commands_lists_those_that_exist() -> None:
    page = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `muster ([\w-]+)", page, re.MULTILINE)
    assert sorted(listed) == sorted(main.commands)


def test_the_pages_name_examples_that_exist() -> None:
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    named = {name for text in texts for name in re.findall(r"--example ([a-z][\w/-]*)", text)}
    assert "flower/digits" in named
    assert named <= {example.name for example in examples()}


def test_the_table_of_aggregators_names_all_of_them() -> None:
    page = (ROOT / "docs/aggregators.md").read_text(encoding="utf-8")
    rows = page.partition("explained in |\n")[2].partition("\n\n")[0].splitlines()
    cells = [next(cell for cell in row.split("|") if "`" in cell) for row in rows[1:]]
    named = re.findall(r"`([^`]+)`", " ".join(cells))
    assert sorted(named) == sorted(BUILT_IN)


@pytest.mark.slow
def test_generated_parts_are_those_of_the_code() -> None:
    command = [sys.executable, str(ROOT / "docs/generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
